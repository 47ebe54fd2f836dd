"""The published schema says what the code does, as far as a schema can."""

import json
from pathlib import Path

import pytest
import sluice
import yaml
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.intake import short_form
from sluice.core.intake import workload_options as options
from sluice.core.intake.submission import Accepted
from sluice.core.intake.vetting import without_nulls

from tests.unit.submission.builders import (
    a_job,
    a_tenant,
    a_verbatim,
    a_workload,
    accepted,
    errors,
    rendered,
)
from tests.unit.submission.test_options import FULL
from tests.unit.submission.test_properties import changed_documents, decisions

SCHEMA = json.loads((Path(sluice.__file__).parent / "schemas/workload.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
MANIFESTS = sorted((Path(__file__).parents[3] / "examples/manifests").glob("*.yaml"))
EXAMPLES = [
    pytest.param(document, id=f"{path.name}-{place}")
    for path in MANIFESTS
    for place, document in enumerate(yaml.safe_load_all(path.read_text()))
]


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_knows_the_fields_that_the_code_knows():
    known = {"queue", "priority", "job", *options.FIELDS, *short_form.FIELDS}

    assert set(SCHEMA["properties"]["spec"]["properties"]) == known


@pytest.mark.parametrize(
    "document", [a_workload(), a_workload(**FULL), a_verbatim(a_job()), a_workload(array="0-9%2")]
)
def test_good_documents_are_valid(document):
    VALIDATOR.validate(document)
    accepted(document)


@pytest.mark.parametrize("mode", [*CheckpointMode, "app", "signal", "criu"])
def test_every_way_to_save_is_valid(mode):
    VALIDATOR.validate(a_workload(checkpoint={"mode": str(mode)}))
    accepted(a_workload(checkpoint={"mode": str(mode)}))


@pytest.mark.parametrize(
    "document",
    [
        a_workload() | {"kind": "Job"},
        a_workload() | {"extra": 1},
        a_workload(queue=None),
        a_workload(resorces={}),
        a_workload(job=a_job()),
        a_workload(array="1-9"),
        a_workload(parallelism=0),
        a_workload(env=[{"name": "A"}]),
        a_workload(resources={"cpu": -1}),
        a_workload(checkpoint={"mode": "magic"}),
        a_workload(deadlines={"maxRuntime": "soon"}),
        a_workload(volumes=[{"name": "a"}]),
        a_workload(dependsOn=[{"name": "a", "id": "b"}]),
        {"apiVersion": "sluice.dev/v1", "kind": "Workload", "spec": {"queue": "research"}},
    ],
)
def test_bad_documents_are_invalid_and_rejected(document):
    assert not VALIDATOR.is_valid(document)
    assert errors(document)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(changed_documents())
def test_what_the_code_accepts_is_valid(document):
    for decision in decisions(json.dumps(document)):
        if isinstance(decision, Accepted) and document["kind"] == "Workload":
            VALIDATOR.validate(without_nulls(document))


@pytest.mark.parametrize("document", EXAMPLES)
def test_the_examples_are_accepted_and_render(document):
    if document["kind"] == "Workload":
        VALIDATOR.validate(document)

    assert rendered(accepted(document, a_tenant(buckets=("team-blue-data/*",))))
