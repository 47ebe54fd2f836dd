"""Every field that Kubernetes knows has an entry, and every bounded field a rule."""

import json
import re

import pytest
from kubernetes.client import models
from sluice.core.intake.pod_fields import FIELDS, HINTS
from sluice.core.intake.vetting import RULES
from sluice.core.jobs.table import KINDS

TREATMENTS = {"pass", "bounded", "profile", "sluice", "reserved", "refused"}
SCALARS = {"str", "int", "bool", "quantity", "port", "any"}
OF_ADD_ONS = {name for kind in KINDS.values() if not kind.built_in for name in kind.fields}
# In one of the two versions only.
RETIRED = {"1.36": {("PodSpec", "workloadRef")}, "1.35": {("PodSpec", "schedulingGroup")}}


def looked_at() -> set[tuple[str, str]]:
    """The fields inside which the vetting looks, so that their own fields need entries."""
    return {
        (kind, field)
        for kind, fields in FIELDS.items()
        if kind not in OF_ADD_ONS
        for field in fields
    }


def reached(schema: dict[str, dict[str, str]], kind: str) -> set[tuple[str, str]]:
    """The fields of a schema (type to field to type) that lie inside what is not refused whole."""
    found: set[tuple[str, str]] = set()
    todo, seen = [kind], set()
    while todo:
        one = todo.pop()
        if one in seen or one not in schema:
            continue
        seen.add(one)
        for field, inner in schema[one].items():
            found.add((one, field))
            if not FIELDS.get(one, {}).get(field, "").endswith(" any"):
                todo.append(inner)
    return found


def of_the_client() -> dict[str, dict[str, str]]:
    """The schema of Kubernetes 1.35 as its Python client has it."""
    schema = {}
    for name in dir(models):
        model = getattr(models, name)
        if name.startswith("V1") and hasattr(model, "openapi_types"):
            schema[name.removeprefix("V1")] = {
                model.attribute_map[field]: re.split(r"[\[(, )\]]+V1|V1|[\[\]]", shape)[1]
                if "V1" in shape
                else shape
                for field, shape in model.openapi_types.items()
            }
    return schema


def of_openapi(document: dict) -> dict[str, dict[str, str]]:
    """The schema in an OpenAPI v3 document, types by their short names."""
    schema = {}
    for name, described in document["components"]["schemas"].items():
        schema[name.rpartition(".")[2]] = {
            field: (re.findall(r'"\$ref": "[^"]*\.(\w+)"', json.dumps(inner)) or [""])[0]
            for field, inner in described.get("properties", {}).items()
        }
    return schema


def test_entries_are_well_formed_and_refer_to_types_that_exist():
    for kind, fields in FIELDS.items():
        for field, entry in fields.items():
            treatment, _, shape = entry.partition(" ")
            assert treatment in TREATMENTS, f"{kind}.{field}"
            assert shape.strip("[]{}") in SCALARS | set(FIELDS), f"{kind}.{field}"


def test_every_bounded_field_has_a_rule_and_no_rule_is_left_over():
    bounded = {
        f"{kind}.{field}"
        for kind, fields in FIELDS.items()
        for field, entry in fields.items()
        if entry.startswith("bounded ")
    }

    assert set(RULES) == bounded


def test_hints_speak_of_fields_that_may_not_be_written():
    for name in HINTS:
        kind, _, field = name.partition(".")
        assert FIELDS[kind][field].partition(" ")[0] in {"refused", "reserved"}, name


def test_every_field_of_kubernetes_1_35_has_an_entry_and_no_entry_is_invented():
    known = reached(of_the_client(), "Job")

    assert known - looked_at() == set()
    assert looked_at() - known == RETIRED["1.35"]


@pytest.mark.stack
def test_every_field_of_kubernetes_1_36_has_an_entry_and_no_entry_is_invented(api_server):
    known = reached(of_openapi(api_server.get("/openapi/v3/apis/batch/v1")), "Job")

    assert known - looked_at() == set()
    assert looked_at() - known == RETIRED["1.36"]
