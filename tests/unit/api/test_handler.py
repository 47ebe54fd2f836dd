"""The handler's edge: hostile requests, unknown addresses, our own faults."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.clusters.capacity import Closure, PoolPlan
from sluice.core.lifecycle.faults import Fault
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.values.reasons import Reason

from functions.api import handler
from tests.unit.api.control_plane import (
    ADMIN,
    BLUE,
    CONTEXT,
    RED,
    ControlPlane,
    cluster,
    context_of,
    native,
)


def raw(plane: ControlPlane, body: str, path: str = "/catalog", **event: Any) -> Any:
    """A request whose body is this text."""
    answer = handler(
        {
            "rawPath": path,
            "requestContext": context_of("POST", ADMIN),
            "body": body,
            **event,
        },
        CONTEXT,
        plane.api,
    )
    return answer["statusCode"], json.loads(answer["body"])


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        '"text"',
        "{}",
        '{"documents": {}}',
        '{"documents": "x"}',
        '{"documents": [1]}',
        '{"documents": [null]}',
        '{"documents": [{}]}',
        '{"documents": [{"kind": "ClusterQueue"}]}',
        '{"documents": [{"kind": "ClusterQueue", "metadata": []}]}',
        '{"documents": [{"kind": ["ClusterQueue"], "metadata": {"name": "x"}}]}',
        '{"documents": [], "dryRun": "yes"}',
        '{"documents": NaN}',
        '{"documents": 1e400}',
        "[" * 100_000,
        '{"a":' * 50_000,
        '{"documents": [], "documents": []}',
    ],
)
def test_a_body_that_makes_no_sense_is_refused_and_changes_nothing(body: str) -> None:
    plane = ControlPlane()
    before = plane.catalog.snapshot()

    status, answer = raw(plane, body)

    if status == 200:
        assert answer["items"] == []
    else:
        assert status == 422
        assert answer["error"]["code"] == "Invalid"
    assert plane.catalog.snapshot() is before


@pytest.mark.parametrize("body", ["*", "e30", "////"])
def test_a_body_that_is_not_what_its_encoding_says_is_refused(body: str) -> None:
    assert raw(ControlPlane(), body, isBase64Encoded=True)[0] == 422


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/nothing"),
        ("DELETE", "/workloads/x"),
        ("POST", "/workloads/x/explode"),
        ("GET", "/workloads/x/why/not"),
        ("POST", "/queues"),
        ("PATCH", "/catalog"),
    ],
)
def test_unknown_addresses_are_told_apart_from_missing_things(method: str, path: str) -> None:
    status, answer = ControlPlane().call(method, path)

    assert (status, answer["error"]["code"]) == (405, "NoSuchRoute")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"},
        {"limit": "x"},
        {"limit": "999999999999"},
        {"since": "1e9"},
        {"since": "9" * 40},
        {"selector": "a"},
        {"selector": "=b"},
        {"ids": ",".join(["a"] * 101)},
    ],
)
def test_queries_have_bounds(query: dict[str, str]) -> None:
    status, answer = ControlPlane().call("GET", "/workloads", query=query)

    assert (status, answer["error"]["code"]) == (422, "Invalid")


@pytest.mark.parametrize("reference", ["..", "%2e%2e%2fx", "a%00b", "A" * 5_000, "%F0%9F%92%A9"])
def test_ids_of_any_shape_find_nothing(reference: str) -> None:
    assert ControlPlane().call("GET", f"/workloads/{reference}")[0] == 404


@pytest.mark.parametrize("pod", ["../../other/0/pod", "..", "", "pod/../pod"])
def test_logs_are_found_by_list_never_by_path(pod: str) -> None:
    plane = ControlPlane()
    workload_id = plane.send(native("job", 1))
    plane.logs.put("other", 0, "pod", "main", b"secret")

    query = {"generation": "0", "pod": pod, "container": "main"}
    _, answer = plane.call("GET", f"/workloads/{workload_id}/logs", RED, query=query)

    assert "secret" not in str(answer)


@pytest.mark.parametrize("priority", [None, True, 1.5, [], {}, 2**31, -(2**31) - 1, "1; drop"])
def test_priorities_that_are_none_are_refused(priority: Any) -> None:
    plane = ControlPlane()
    workload_id = plane.send(native("job", 96))
    waiting = plane.send(native("waiting", 96))

    status, _ = plane.call(
        "POST", f"/workloads/{waiting}/reprioritize", ADMIN, {"priority": priority}
    )

    assert workload_id != waiting
    assert status == 422
    assert plane.workloads.rows[waiting].priority == 0


def test_a_fault_of_ours_is_logged_and_told_by_its_id_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = ControlPlane()
    workload_id = plane.send(native("job", 1))

    def broken(_: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(plane.workloads, "get_many", broken)
    status, answer = plane.call("GET", f"/workloads/{workload_id}")

    assert (status, answer["error"]["code"]) == (500, "Internal")
    assert "request-1" in answer["error"]["message"]
    assert "secret" not in str(answer)


def test_a_reason_is_cut_to_a_sensible_length() -> None:
    plane = ControlPlane()
    plane.send(native("job", 96))
    waiting = plane.send(native("waiting", 96))

    plane.call("POST", f"/workloads/{waiting}/cancel", ADMIN, {"reason": "x" * 100_000})

    assert len(plane.workloads.rows[waiting].reason.message) < 600


def test_the_audit_lists_batches_in_order() -> None:
    plane = ControlPlane()
    for number in range(3):
        plane.send(native(f"job-{number}", 1))

    first = plane.call("GET", "/audit/company", ADMIN, query={"limit": "2"})[1]["items"]
    rest = plane.call("GET", "/audit/company", ADMIN, query={"after": "2"})[1]["items"]

    assert [batch["version"] for batch in first] == [1, 2]
    assert [batch["version"] for batch in rest] == [3]


def test_doctor_names_what_is_missing() -> None:
    bare = ControlPlane(())

    found = {line["check"]: line for line in bare.call("GET", "/doctor")[1]["items"]}

    assert found["tenant"]["result"] == "warn"
    assert found["ClusterQueue"]["result"] == "fail"
    plane = ControlPlane()
    served = tuple(plane.catalog.snapshot().of("ResourceFlavor"))
    plane.pools.put("batch-1", [PoolPlan("all", served, ("spot",))])
    assert {line["result"] for line in plane.call("GET", "/doctor")[1]["items"]} == {"ok"}


def test_doctor_names_pools_that_nobody_labelled_or_that_cannot_buy() -> None:
    plane = ControlPlane()

    def warnings() -> list[dict[str, str]]:
        lines = plane.call("GET", "/doctor")[1]["items"]
        return [line for line in lines if line["result"] == "warn"]

    (unlabelled,) = warnings()
    assert "sluice.dev/managed=true" in unlabelled["message"]

    served = tuple(plane.catalog.snapshot().of("ResourceFlavor"))
    until = plane.clock.now() + 60_000
    closed = Closure(Reason.ACCOUNT_QUOTA, "NodePool all: VcpuLimitExceeded", until)
    plane.pools.put("batch-1", [PoolPlan("all", served, ("spot",), closed=closed)])
    (refused,) = warnings()
    assert "VcpuLimitExceeded" in refused["message"]

    plane.clock.pass_ms(60_000)
    assert warnings() == []


def a_fault(plane: ControlPlane, function: str, subject: str) -> Fault:
    return Fault(
        function,
        subject,
        "MISCONFIGURATION:MissingRight",
        "UpdateItem: not authorized to perform: dynamodb:UpdateItem",
        plane.clock.now(),
    )


def test_doctor_names_a_right_that_a_function_lacks_until_that_is_long_ago() -> None:
    plane = ControlPlane()
    plane.faults.note(a_fault(plane, "admit", "company"))

    def failed() -> list[dict[str, str]]:
        lines = plane.call("GET", "/doctor", ADMIN)[1]["items"]
        return [line for line in lines if line["result"] == "fail"]

    (line,) = failed()
    assert line["check"] == "function admit (company)"
    assert "dynamodb:UpdateItem" in line["message"]
    assert line["advice"]

    plane.clock.pass_ms(900_000)
    assert failed() == []


def test_why_names_the_right_that_keeps_admit_from_a_pending_workload() -> None:
    plane = ControlPlane()
    plane.send(native("first", 96))
    job = plane.send(native("job", 96))
    plane.clock.pass_ms(1_000)
    plane.faults.note(a_fault(plane, "admit", "company"))

    told = plane.call("GET", f"/workloads/{job}/why", ADMIN)[1]
    tenants = plane.call("GET", f"/workloads/{job}/why", RED)[1]

    assert "dynamodb:UpdateItem" in told["headline"]
    assert told["reason"]["code"] == "MISCONFIGURATION:MissingRight"
    assert told["reason"]["action"] == "ASK-ADMIN"
    assert "dynamodb" not in str(tenants)  # the words may name what is not the tenant's business
    assert "sluice doctor" in tenants["headline"]


def test_why_forgets_a_fault_that_a_later_pass_has_outlived() -> None:
    plane = ControlPlane()
    plane.send(native("first", 96))
    plane.faults.note(a_fault(plane, "admit", "company"))
    job = plane.send(native("job", 96))

    assert "right" not in plane.call("GET", f"/workloads/{job}/why", ADMIN)[1]["headline"]


def test_why_names_the_right_that_keeps_observe_from_a_dispatched_workload() -> None:
    plane = ControlPlane()
    job = plane.send(native("job", 1))
    plane.clock.pass_ms(1_000)
    plane.faults.note(a_fault(plane, "observe", "cluster-of-somebody-else"))
    assert "cannot" not in plane.call("GET", f"/workloads/{job}/why", ADMIN)[1]["headline"]

    plane.faults.note(a_fault(plane, "observe", plane.workloads.rows[job].cluster))

    told = plane.call("GET", f"/workloads/{job}/why", ADMIN)[1]
    assert told["headline"].startswith("observe cannot do its work")


def test_what_a_tenant_may_not_is_told_apart_from_what_nobody_may() -> None:
    plane = ControlPlane()
    plane.send(native("a", 1, namespace="blue"))
    wrong = native("b", 1)
    wrong["spec"]["imege"] = "x"
    plane.send(wrong)

    listed = plane.call("GET", "/workloads", RED)[1]["items"]

    assert {each["name"]: each["reason"]["code"] for each in listed} == {
        "a": "MISCONFIGURATION:PolicyDenied",
        "b": "MISCONFIGURATION:SchemaInvalid",
    }


def test_rejected_documents_without_a_queue_of_theirs_are_listed_too() -> None:
    plane = ControlPlane()
    plane.deliver("{")
    plane.send(native("lost", 1, queue="nowhere"))

    listed = plane.call("GET", "/workloads", RED)[1]["items"]

    assert {each["reason"]["code"] for each in listed} == {
        "MISCONFIGURATION:SchemaInvalid",
        "MISCONFIGURATION:UnknownQueue",
    }
    assert {each["queue"] for each in listed} == {"red/-"}
    assert plane.call("GET", "/workloads", BLUE)[1]["items"] == []


def test_a_new_cluster_counts_as_answering_until_it_was_asked() -> None:
    plane = ControlPlane()

    status, _ = raw(plane, json.dumps({"documents": [cluster("newest")]}))

    assert status == 200
    (row,) = (each for each in plane.nodes.heartbeats() if each.instance == "newest")
    assert row.seen_at == plane.clock.now()


def test_work_that_no_cluster_takes_keeps_that_reason_while_nothing_changes() -> None:
    plane = ControlPlane()
    (name,) = plane.catalog.snapshot().of("Cluster")
    cordoned = cluster(name) | {"spec": {"cordoned": True}}
    assert raw(plane, json.dumps({"documents": [cordoned]}))[0] == 200

    job = plane.send(native("early", 1))

    told = plane.call("GET", f"/workloads/{job}/why", RED)[1]
    assert "cordoned" in told["headline"]


@pytest.mark.parametrize(
    ("path", "name"),
    [("/workloads", "since"), ("/workloads", "limit"), ("/workloads/abc/logs", "generation")],
)
def test_d5_thousands_of_digits_are_refused(path: str, name: str) -> None:
    """Finding D5: Python refuses to read them as a number, which was our fault (500)."""
    plane = ControlPlane()

    for digits in ("9" * 5_000, "0" * 5_000, "9" * 17, "-1", "1e3", "１"):
        status, _ = plane.call("GET", path, query={name: digits})
        assert status == 422
    for digits in ("9" * 5_000, "9" * 17):
        status, _ = plane.call("GET", f"/passes/all/{digits}")
        assert 400 <= status < 500


@pytest.mark.parametrize(("seen_after_ms", "result"), [(-1, "fail"), (1, "warn")])
def test_doctor_tells_what_was_from_what_is(seen_after_ms: int, result: str) -> None:
    plane = ControlPlane()
    fault = replace(a_fault(plane, "act", "batch-1"), code="PLATFORM:ClusterUnreachable")
    plane.faults.note(fault)
    row = InventoryRow(instance="i-1", seen_at=fault.at + seen_after_ms)
    plane.nodes.put_many("batch-1", [row])
    plane.clock.pass_ms(30_000)

    lines = plane.call("GET", "/doctor", ADMIN)[1]["items"]

    (line,) = [line for line in lines if line["check"] == "function act (batch-1)"]
    assert line["result"] == result
    assert ("it worked again 29 s ago" in line["message"]) is (result == "warn")
