"""Finding D1: nothing that a document contains does more than spoil its own answer.

Every reader, beside a good neighbour. SLUICE_HOSTILE_DOCUMENTS sets how many documents Hypothesis
draws for each; `python -m tests.hostile.fuzz` tries them for hours. What once failed lies in
`corpus`, a folder for each reader.
"""

from __future__ import annotations

import json
import os
import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.fuzz import CORPUS, tried
from tests.hostile.readers import READERS, Reader, prepare
from tests.unit.submission.builders import a_workload

DOCUMENTS = int(os.environ.get("SLUICE_HOSTILE_DOCUMENTS", "25"))
MEBIBYTE = 1 << 20
MOST_BYTES = 128 * MEBIBYTE
"""What one message may make a function allocate; `submit` and `api` have 512 MB."""
BY_NAME = {reader.name: reader for reader in READERS}
KEPT = sorted(CORPUS.glob("*/*.txt"))


@pytest.fixture(autouse=True, scope="module")
def functions() -> Any:
    patch = pytest.MonkeyPatch()
    # Restored afterwards: the readers put their own worlds behind the handlers.
    from sluice import bootstrap

    for name in ("answer", "handle_notices", "relay"):
        patch.setattr(bootstrap, name, getattr(bootstrap, name))
    prepare(patch.setattr)
    yield
    patch.undo()


@pytest.mark.filterwarnings("ignore:No application metrics")
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@settings(
    max_examples=DOCUMENTS, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
@given(dice=st.randoms(use_true_random=False))
def test_d1_whatever_a_document_holds_spoils_its_own_answer_only(
    reader: Reader, dice: Random
) -> None:
    tried(reader, reader.make(dice))


@pytest.mark.filterwarnings("ignore:No application metrics")
@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_d1_what_failed_once_fails_no_more(path: Any) -> None:
    text = path.read_bytes().decode("utf-8", "surrogatepass")

    tried(BY_NAME[path.parent.name], text)


def filled(item: Any) -> str:
    """A List of as many of these as a message holds."""
    one = json.dumps(item)
    count = min(1000, (MEBIBYTE - 100) // (len(one) + 2))
    return f'{{"kind": "List", "apiVersion": "v1", "items": [{", ".join([one] * count)}]}}'


LARGEST = {
    "one text": json.dumps(a_workload(command=["x" * (MEBIBYTE - 2_000)])),
    "many labels": json.dumps(
        {**a_workload(), "metadata": {"name": "x", "labels": {f"l{n}": "v" for n in range(990)}}}
    ),
    "small documents": filled({"kind": "Workload"}),
    "numbers": json.dumps({"kind": "List", "items": [list(range(100))] * 990}),
    "brackets": "[" * (MEBIBYTE - 1),
    "an open string": '"' + "\\" * (MEBIBYTE - 2),
    "blanks": " " * (MEBIBYTE - 1),
    "empty lists": "[" + "[]," * 340_000 + "[]]",
    "digits": "1" * (MEBIBYTE - 1),
    "one key": json.dumps({"a" * (MEBIBYTE - 20): 1}),
}


@pytest.mark.filterwarnings("ignore:No application metrics")
@pytest.mark.parametrize("shape", LARGEST)
def test_d1_a_message_of_a_mebibyte_costs_a_bounded_amount_of_memory(shape: str) -> None:
    text = LARGEST[shape].replace("team-blue", "red")
    assert len(text) <= MEBIBYTE
    tracemalloc.start()
    try:
        BY_NAME["submission"].read(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < MOST_BYTES, f"{most >> 20} MiB"
