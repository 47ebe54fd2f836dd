"""A ledger is the sum of what its workloads hold, and the audit says where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record_entries import JobResult

from tests.unit.api.control_plane import RED, ControlPlane, native


def a_plane() -> tuple[ControlPlane, str]:
    plane = ControlPlane()
    job = plane.send(native("job", 8))
    plane.run(job)
    return plane, job


def ledger(plane: ControlPlane, name: str) -> dict[str, Any]:
    status, answer = plane.call("GET", f"/ledgers/{name}")
    assert status == 200, answer
    return dict(answer)


@pytest.mark.parametrize("name", ["company", "red-cq", "red/batch", "red%2Fbatch"])
def test_a_root_is_found_by_whatever_lies_below_it(name: str) -> None:
    plane, job = a_plane()

    found = ledger(plane, name)

    assert (found["root"], found["differences"], found["moved"]) == ("company", 0, False)
    (cell,) = found["cells"]
    assert (cell["clusterQueue"], cell["used"], cell["reserved"]) == ("red-cq", "8", "8")
    assert [(h["id"], h["holds"]) for h in found["holders"]] == [(job, {"spot/cpu": "8"})]


def test_a_ledger_that_says_too_much_is_told_with_who_holds_there() -> None:
    plane, job = a_plane()
    plane.ledgers.ledgers["company"].usage["red-cq"]["spot|cpu"] += 1_500

    found = ledger(plane, "company")

    assert found["differences"] == 1
    (cell,) = found["cells"]
    assert (cell["used"], cell["difference"], cell["holders"]) == ("9500m", "+1500m", [job])


def test_a_reservation_that_no_ledger_counts_is_told() -> None:
    plane, _ = a_plane()
    del plane.ledgers.ledgers["company"].usage["red-cq"]

    (cell,) = ledger(plane, "company")["cells"]

    assert (cell["used"], cell["difference"]) == ("0", "-8")
    assert plane.call("GET", "/ledgers")[1]["items"][0]["differences"] == 1


def test_what_has_ended_and_waits_for_its_release_still_counts() -> None:
    plane, job = a_plane()
    record = plane.workloads.rows[job]
    plane.workloads.apply([lifecycle.finish(record, JobResult(succeeded=True), plane.clock.now())])

    assert ledger(plane, "company")["differences"] == 0


def test_an_unknown_name_is_told_with_the_roots() -> None:
    status, answer = ControlPlane().call("GET", "/ledgers/nobody")

    assert (status, answer["error"]["hint"]) == (
        404,
        "root cohorts: company; a LocalQueue is NAMESPACE/NAME",
    )


def test_tenants_may_not() -> None:
    plane, _ = a_plane()

    assert [plane.call("GET", path, RED)[0] for path in ("/ledgers", "/ledgers/company")] == [
        403,
        403,
    ]
