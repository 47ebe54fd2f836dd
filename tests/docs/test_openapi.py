"""docs/reference/openapi.json: valid, complete, and what the api really answers."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from sluice.api.routes import ROUTES

from tests.docs.generate import REFERENCE
from tests.docs.openapi import ANSWERS, asked, name_of
from tests.unit.api.control_plane import ADMIN, BLUE, RED, ControlPlane, Signer, native

PUBLISHED = json.loads((REFERENCE / "openapi.json").read_text(encoding="utf-8"))


def test_it_is_valid_openapi() -> None:
    assert [str(each) for each in OpenAPIV31SpecValidator(PUBLISHED).iter_errors()] == []


def test_every_route_of_the_table_is_in_it_and_nothing_else() -> None:
    told = {
        f"{method.upper()} {path.removeprefix('/')}"
        for path, methods in PUBLISHED["paths"].items()
        for method in methods
    }

    assert told == {name_of(route) for route in ROUTES} == ANSWERS.keys()
    assert sum(map(len, PUBLISHED["paths"].values())) == len(ROUTES)


def test_it_names_what_a_route_reads_of_query_and_body() -> None:
    by_name = {name_of(route): asked(route) for route in ROUTES}

    assert set(by_name["GET workloads"].read) == {
        *("ids", "queue", "state", "name", "user", "selector", "since", "limit", "cursor")
    }
    assert set(by_name["GET workloads/{id}/logs"].read) == {
        *("pod", "generation", "container", "offset", "all")
    }
    assert by_name["POST catalog"].fields.keys() == {"documents", "dryRun", "prune"}
    assert by_name["POST catalog"].needed == {"documents"}


def test_every_reference_leads_to_a_component() -> None:
    names = set(PUBLISHED["components"]["schemas"])
    used = set(json.dumps(PUBLISHED).split('"#/components/schemas/')[1:])

    assert {each.partition('"')[0] for each in used} == names


def closed(schema: Any) -> Any:
    """The same, without room for a field that no schema names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        found.setdefault("additionalProperties", False)
    return found


CLOSED = closed(deepcopy(PUBLISHED))


def flaws(path: str, method: str, answer: Any, status: int = 200) -> list[str]:
    """What of an answer the description does not say."""
    described = CLOSED
    response = described["paths"][path][method.lower()]["responses"][str(status)]
    if "$ref" in response:
        response = described["components"]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    whole = schema | {"components": described["components"]}
    found = Draft202012Validator(whole).iter_errors(answer)
    return [f"{method} {path} {each.json_path}: {each.message}" for each in found]


@pytest.fixture(scope="module")
def busy() -> tuple[ControlPlane, dict[str, str]]:
    """Somebody runs, waits behind others, is refused, has succeeded, has failed."""
    plane = ControlPlane()
    ids = {"done": plane.send(native("done", 1))}
    plane.run(ids["done"])
    plane.finish(ids["done"])
    ids["failed"] = plane.send(native("failed", 1))
    plane.run(ids["failed"])
    plane.finish(ids["failed"], succeeded=False, nodes=["node-1"])
    ids["runs"] = plane.send(native("runs", 60))
    plane.run(ids["runs"], capacity="spot", usd_per_hour=1.5, on_demand_usd_per_hour=4.0)
    ids["held"] = plane.send(native("held", 30, namespace="blue"), BLUE)
    ids["waits"] = plane.send(native("waits", 50))
    ids["behind"] = plane.send(native("behind", 50))
    ids["refused"] = plane.send(native("refused", 1, queue="nowhere"))
    plane.call("POST", f"/workloads/{ids['held']}/hold", BLUE, {})
    return plane, ids


PLAIN = [
    *("identity", "status", "doctor", "workloads", "queues", "capacity", "shares", "costs"),
    *("ledgers", "dead-letters"),
]


@pytest.mark.parametrize("signer", [ADMIN, RED], ids=["administrator", "tenant"])
@pytest.mark.parametrize("path", PLAIN)
def test_answers_are_as_described(path: str, signer: Signer, busy: Any) -> None:
    plane, _ = busy

    status, answer = plane.call("GET", f"/{path}", signer)

    assert flaws(f"/{path}", "GET", answer, status) == []


@pytest.mark.parametrize("part", ["", "/manifest", "/events", "/why", "/logs", "/machines"])
@pytest.mark.parametrize("which", ["done", "failed", "runs", "held", "waits", "behind", "refused"])
def test_answers_about_a_workload_are_as_described(part: str, which: str, busy: Any) -> None:
    plane, ids = busy

    status, answer = plane.call("GET", f"/workloads/{ids[which]}{part}")

    assert flaws(f"/workloads/{{id}}{part}", "GET", answer, status) == []


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/workloads/{runs}/checkpoints", "/workloads/{id}/checkpoints"),
        ("/catalog/ClusterQueue", "/catalog/{kind}"),
        ("/catalog/LocalQueue/red/batch", "/catalog/{kind}/{name}"),
        ("/ledgers/company", "/ledgers/{root}"),
        ("/audit/company", "/audit/{root}"),
        ("/passes/company", "/passes/{root}"),
        ("/dead-letters/submissions", "/dead-letters/{queue}"),
    ],
)
def test_answers_about_one_thing_are_as_described(path: str, template: str, busy: Any) -> None:
    plane, ids = busy

    status, answer = plane.call("GET", path.format(**ids))

    assert status == 200
    assert flaws(template, "GET", answer) == []


def test_refusals_are_as_described(busy: Any) -> None:
    plane, ids = busy

    status, answer = plane.call("GET", "/workloads/nothing")
    assert (status, flaws("/workloads/{id}", "GET", answer, status)) == (404, [])
    status, answer = plane.call("POST", "/catalog", RED, {"documents": []})
    assert (status, flaws("/catalog", "POST", answer, status)) == (403, [])
    status, answer = plane.call("POST", "/catalog", ADMIN, {"documents": [{}]})
    assert (status, flaws("/catalog", "POST", answer, status)) == (422, [])
    status, answer = plane.call("POST", f"/workloads/{ids['done']}/hold", RED, {})
    assert (status, flaws("/workloads/{id}/hold", "POST", answer, status)) == (409, [])


def test_a_field_that_nobody_described_is_found(busy: Any) -> None:
    plane, ids = busy
    _, answer = plane.call("GET", f"/workloads/{ids['runs']}")

    assert flaws("/workloads/{id}", "GET", answer) == []
    assert len(flaws("/workloads/{id}", "GET", answer | {"unheardOf": 1})) == 1
    assert len(flaws("/workloads/{id}", "GET", answer | {"phase": "SLEEPING"})) == 1


def test_what_requests_change_is_answered_as_described() -> None:
    plane = ControlPlane()
    plane.send(native("first", 90))
    one = plane.send(native("one", 50))

    for verb, body in (("hold", {}), ("release", {}), ("reprioritize", {"priority": -1})):
        status, answer = plane.call("POST", f"/workloads/{one}/{verb}", RED, body)
        assert (status, flaws(f"/workloads/{{id}}/{verb}", "POST", answer)) == (200, [])
    documents = [native("other", 1)]
    status, answer = plane.call("POST", "/whatif", RED, {"documents": documents})
    assert (status, flaws("/whatif", "POST", answer)) == (200, [])
    objects = plane.call("GET", "/catalog/ClusterQueue")[1]["items"]
    status, answer = plane.call("POST", "/catalog", ADMIN, {"documents": objects, "dryRun": True})
    assert (status, flaws("/catalog", "POST", answer)) == (200, [])
