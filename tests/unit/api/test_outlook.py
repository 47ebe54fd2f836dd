"""The approximate wait that `why` tells: from what is known of those who hold and those ahead."""

from __future__ import annotations

from typing import Any

from tests.unit.api.control_plane import RED, ControlPlane, native

ALL = 96  # cores of both teams


def wait(plane: ControlPlane, workload: str) -> Any:
    return plane.call("GET", f"/workloads/{workload}/why", RED)[1]["approximateWaitSeconds"]


def deadline(name: str, **deadlines: str) -> dict[str, Any]:
    document = native(name, ALL)
    return document | {"spec": document["spec"] | {"deadlines": deadlines}}


def finished(plane: ControlPlane, *minutes: int) -> None:
    for number, lasted in enumerate(minutes):
        job = plane.send(native(f"done-{number}", ALL))
        plane.run(job)
        plane.clock.pass_ms(60_000 * lasted)
        plane.finish(job)


def test_nothing_is_told_where_nothing_is_known() -> None:
    plane = ControlPlane()
    plane.run(plane.send(native("holder", ALL)))
    waiting = plane.send(native("waiting", ALL))

    assert wait(plane, waiting) is None


def test_a_bound_on_the_runtime_of_the_holder_bounds_the_wait() -> None:
    plane = ControlPlane()
    plane.run(plane.send(deadline("holder", maxRuntime="10m")))
    waiting = plane.send(native("waiting", ALL))

    assert wait(plane, waiting) == {"least": 0.0, "most": 599.0}


def test_finished_runs_tell_how_long_those_ahead_take_and_not_how_often_one_is_admitted() -> None:
    plane = ControlPlane()
    finished(plane, 10, 10, 10, 20)
    plane.run(plane.send(native("holder", ALL)))
    plane.send(native("ahead", ALL))
    asked = plane.send(native("asked", ALL))

    # The holder runs for two seconds by now; quartiles are of 10, 10, 10 and 20 minutes.
    assert wait(plane, asked) == {"least": 1198.0, "most": 2398.0}


def test_runs_that_were_shorter_than_the_holder_has_run_say_nothing_of_it() -> None:
    plane = ControlPlane()
    finished(plane, 10, 10, 10, 20, 20, 20)
    plane.run(plane.send(native("holder", ALL)))
    plane.clock.pass_ms(15 * 60_000)
    waiting = plane.send(native("waiting", ALL))

    assert wait(plane, waiting) == {"least": 299.0, "most": 299.0}


def test_what_waits_for_something_else_than_quota_has_no_estimate() -> None:
    plane = ControlPlane()
    plane.run(plane.send(deadline("holder", maxRuntime="10m")))
    held = plane.send(native("held", ALL))
    plane.call("POST", f"/workloads/{held}/hold", RED)

    assert wait(plane, held) is None
