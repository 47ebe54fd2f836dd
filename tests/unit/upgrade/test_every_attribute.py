"""A record in which commit d5fa189 had set every attribute is read whole, and stored as whole."""

import json
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.migration_items import checkpoint_row, to_checkpoint, to_migration, to_record
from sluice.adapters.workload_items import item_of, workload_of
from sluice.core.lifecycle.record import Workload

STORED = json.loads(
    (Path(__file__).parent / "records" / "every-attribute-d5fa189.json").read_text()
)
LATER = {  # what d5fa189 did not know
    ".object",
    ".options.checkpoint.connections",
    ".options.wait_for_pods_ready",
    ".runs[0].ordered_at",
    ".runs[1].ordered_at",
    ".shape_hash",
    ".result.exit_code_counts",
    ".result.index_counts",
    ".result.node_count",
    *(f".pod_sets[0].{name}" for name in ("node_selector", "affinity", "tolerations")),
}
NOT_READ_ANY_MORE = {"ready_pods"}  # d5fa189 removed it, but never set it
RECORD = workload_of(STORED["workload"])


def defaults(value: Any, path: str = "") -> list[str]:
    """The fields of a dataclass, and of those within it, that hold their default."""
    if isinstance(value, tuple):
        return [found for n, each in enumerate(value) for found in defaults(each, f"{path}[{n}]")]
    if not is_dataclass(value):
        return []
    found = []
    for field in fields(value):
        inner = getattr(value, field.name)
        unset = field.default_factory() if field.default_factory is not MISSING else field.default
        found += [f"{path}.{field.name}"] if inner == unset else []
        found += defaults(inner, f"{path}.{field.name}")
    return found


def test_every_attribute_is_read() -> None:
    beyond = {path for path in defaults(RECORD) if not path.startswith(".intent.account.")}

    assert beyond == LATER
    assert RECORD.intent is not None
    account = RECORD.intent.account
    assert (account.node, account.lost_ms, account.stopped_at) == ("n", 0, 1_800_000_000_000)


def test_every_attribute_of_a_run_is_read_also_where_it_repeats_the_record() -> None:
    whole, lean = RECORD.runs

    assert (lean.cluster, lean.admitted_at) == (RECORD.cluster, RECORD.admitted_at)
    assert (whole.back_to, whole.lost_ms, whole.microusd, whole.by) == (0, 5, 7, "w9")
    assert dict(whole.counts) == {"main": 1}


def test_what_is_stored_again_is_what_was_stored() -> None:
    stored = from_item(STORED["workload"])

    assert from_item(item_of(RECORD)) == {
        name: value for name, value in stored.items() if name not in NOT_READ_ANY_MORE
    }
    assert set(Workload.__slots__) - {"object", "shape_hash"} <= STORED["workload"].keys()


def test_a_migration_and_a_checkpoint_are_stored_as_they_were() -> None:
    migration = to_migration(from_item(STORED["migration"]))
    row = from_item(STORED["checkpoint"])

    assert from_item(to_item(to_record(migration))) == from_item(STORED["migration"])
    assert checkpoint_row(to_checkpoint("w1", row)) == row
