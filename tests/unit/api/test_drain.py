"""A cordon keeps new work away; a drain sends away what is there, with its quota released last."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.lifecycle.record import State

from tests.unit.api.control_plane import COMPANY, RED, ControlPlane, cluster, flavor, native

HERE, OTHER = "batch-1", "batch-2"


def a_plane(*more: dict[str, Any]) -> tuple[ControlPlane, str]:
    """A workload runs in the first of all clusters."""
    plane = ControlPlane((*COMPANY, *more))
    job = plane.send(native("job", 64))
    assert plane.workloads.rows[job].cluster == HERE
    plane.run(job)
    return plane, job


def drain(plane: ControlPlane, **body: Any) -> dict[str, Any]:
    status, answer = plane.call("POST", f"/clusters/{HERE}/drain", body=body)
    assert status == 200, answer
    return dict(answer)


def test_work_leaves_the_cluster_and_goes_on_in_another() -> None:
    plane, job = a_plane(cluster(OTHER))

    first = drain(plane, reason="new kernel")
    assert (first["requeued"], first["left"], first["nowhere"]) == (1, 1, 0)
    record = plane.workloads.rows[job]
    assert record.state is State.RECLAIMING
    assert record.intent is not None
    assert record.intent.message.endswith(": new kernel")
    again = drain(plane)
    assert (again["requeued"], again["stopping"], again["left"]) == (0, 1, 1)

    plane.stopped(job)

    record = plane.workloads.rows[job]
    assert (record.state, record.generation, record.cluster) == (State.ADMITTED, 1, OTHER)
    assert drain(plane)["left"] == 0


def test_nothing_new_comes_until_it_is_uncordoned() -> None:
    plane, job = a_plane()
    drain(plane)
    plane.stopped(job)
    assert plane.workloads.rows[job].state is State.PENDING

    reason = plane.call("GET", f"/workloads/{job}")[1]["reason"]
    assert reason["code"] == "HELD:ClusterCordoned"

    _, said = plane.call("POST", f"/clusters/{HERE}/uncordon")
    assert said["changed"]
    plane.settle()
    assert plane.workloads.rows[job].state is State.ADMITTED


def test_a_dry_run_says_what_would_have_to_wait_and_changes_nothing() -> None:
    elsewhere = cluster(OTHER) | {"spec": {"flavors": ["on-demand"]}}
    plane, job = a_plane(flavor("on-demand"), elsewhere)

    plan = drain(plane, dryRun=True)

    assert (plan["requeued"], plan["nowhere"], plan["dryRun"]) == (1, 1, True)
    assert [(each["id"], each["elsewhere"]) for each in plan["items"]] == [(job, False)]
    assert plane.workloads.rows[job].state is State.DISPATCHED
    assert "cordoned" not in plane.catalog.snapshot().of("Cluster")[HERE]["spec"]


def test_a_cordon_says_whose_it_is_and_leaves_nothing_behind() -> None:
    plane, job = a_plane()
    before = plane.catalog.snapshot().of("Cluster")[HERE]

    _, first = plane.call("POST", f"/clusters/{HERE}/cordon", body={"reason": "why not"})
    _, again = plane.call("POST", f"/clusters/{HERE}/cordon", body={"reason": "again"})

    cordoned = plane.catalog.snapshot().of("Cluster")[HERE]
    assert (first["changed"], again["changed"]) == (True, False)
    assert cordoned["metadata"]["annotations"]["sluice.dev/cordoned-by"].endswith(": why not")
    assert plane.workloads.rows[job].state is State.DISPATCHED, "what runs there runs on"
    told = [line["message"] for line in plane.call("GET", "/doctor")[1]["items"]]
    assert "is cordoned by Platform/session: why not" in told
    plane.call("POST", f"/clusters/{HERE}/uncordon")
    assert plane.catalog.snapshot().of("Cluster")[HERE] == before


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
def test_only_administrators_and_only_clusters_that_exist(verb: str) -> None:
    plane, job = a_plane()

    assert plane.call("POST", f"/clusters/{HERE}/{verb}", RED)[0] == 403
    status, answer = plane.call("POST", f"/clusters/none/{verb}")
    assert (status, answer["error"]["hint"]) == (404, "clusters: batch-1")
    assert plane.workloads.rows[job].state is State.DISPATCHED
