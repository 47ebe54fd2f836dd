"""Checkpoints from which nothing starts, and machines on which one could not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.accounting.recovery import recovery, undone
from sluice.core.accounting.usage_intervals import IntervalKind, usage_intervals
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.core.lifecycle.run import Run
from sluice.core.migrations.checkpointing import KEPT, Checkpoint, CheckpointEntries, newest
from sluice.core.migrations.cpu_compatibility import GENERATION, MANUFACTURER, cpu_of, node_labels
from sluice.core.migrations.interruption import CHECKPOINT_REQUESTED, request_event
from sluice.core.migrations.pod_annotations import RESTORE_FROM
from sluice.core.migrations.restoring import why_not_restored

from tests.records import options_of
from tests.unit.migration.town import Town
from tests.unit.usecases.plane import admitted

INTEL = {MANUFACTURER: "intel", GENERATION: "5"}
IMAGE = "registry/w:1"
FAILED_JOB = {"metadata": {}, "spec": {}, "status": {
    "conditions": [{"type": "Failed", "status": "True"}]
}}  # fmt: skip
RUNNING_JOB: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {"ready": 0}}
ASKED, MOVED = (f"s3://bucket/{order}/w-w-g0-pod.tar" for order in ("request-1", "first-0"))


def a_checkpoint(n: int, **fields: Any) -> Checkpoint:
    made = Checkpoint("w", n, f"s3://b/{n}.tar", n, CheckpointMode.KUBELET)
    return replace(made, **fields)


def saved_and_moved(town: Town, *damaged: str) -> None:
    """`w` is saved on request, and again when its machine goes away."""
    node = town.runs("w", "kubelet")
    about = {"workload": "w", "order": "request-1"}
    town.hear(request_event(CHECKPOINT_REQUESTED, town.clock.now(), about))
    town.save()
    town.observe()
    town.kubernetes.damaged = set(damaged)
    town.clock.pass_ms(5_000)
    town.hear(town.notice(node))


def pods(town: Town) -> list[dict[str, Any]]:
    return town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]


def test_one_that_no_machine_can_restore_is_not_tried_again(town: Town) -> None:
    town.kubernetes.restore_error = "criu failed: File tmp/x has bad size 998 (expect 898)"
    saved_and_moved(town, MOVED)

    town.pass_quietly(200)

    row = town.row("w")
    assert (row.state, row.restore_from) == (State.DISPATCHED, ASKED)
    assert [run.why for run in row.runs] == ["spot", "restore"]
    (line,) = (each for each in town.timeline.of("w") if each["what"] == "RestoreFailed")
    assert "a file that it has open has changed since the dump, so it is not" in line["message"]
    assert recovery(row).moves == 1
    town.check()


def test_one_that_cannot_be_restored_is_tried_again_and_then_begins_with_the_one_before(
    town: Town,
) -> None:
    saved_and_moved(town, MOVED)

    town.pass_quietly(200)

    row = town.row("w")
    assert (row.state, row.restore_from) == (State.DISPATCHED, ASKED)
    assert town.kubernetes.running() == ["w"]
    assert [run.why for run in row.runs] == ["spot", "restore", "restore"]
    retry, other = (
        line["message"] for line in town.timeline.of("w") if line["what"] == "RestoreFailed"
    )
    assert "it is tried once more; StartError: criu restore failed" in retry
    assert f"generation 3 starts from {ASKED}" in other
    assert row.reservation is not None
    assert recovery(row).moves == 1
    assert [line["what"] for line in town.timeline.of("w")].count("Resumed") == 1
    assert town.migrations.rows["w#0"].numbers["lost_ms"] == recovery(row).lost_ms
    town.check()


def test_when_nothing_can_be_restored_it_begins_anew(town: Town) -> None:
    saved_and_moved(town, ASKED, MOVED)

    town.pass_quietly(400)

    row = town.row("w")
    assert (row.state, row.restore_from, len(row.runs)) == (State.DISPATCHED, "", 5)
    assert town.kubernetes.running() == ["w"]
    assert all(not each.usable for each in town.migrations.checkpoints("w"))


def test_who_is_cancelled_while_it_cannot_be_restored_is_cancelled(town: Town) -> None:
    saved_and_moved(town, MOVED)
    while town.row("w").generation == 0:
        town.pass_quietly(10)
    cancel = Intent(IntentKind.CANCEL, "CANCELLED:User")
    assert town.workloads.apply([lifecycle.reclaim(town.row("w"), cancel)]) == [True]

    town.pass_quietly(60)

    assert town.row("w").state is State.CANCELLED
    assert town.row("w").reservation is None


def container(reason: str, image: str = IMAGE) -> dict[str, Any]:
    return {"image": image, "state": {"waiting": {"reason": reason, "message": "no"}}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (container("CreateContainerError"), "CreateContainerError: no"),
        (container("RunContainerError"), "RunContainerError: no"),
        (container("ImagePullBackOff"), "ImagePullBackOff: no"),
        (container("ErrImagePull"), ""),
        (container("ImagePullBackOff", "the/users:own"), ""),
        (container("CreateContainerConfigError"), ""),
        (container("ContainerCreating"), ""),
        ({"state": {"terminated": {"reason": "StartError", "message": "m"}}}, "StartError: m"),
        ({"state": {"terminated": {"reason": "Error", "exitCode": 1}}}, ""),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"reason": "StartError", "message": "m"}},
            },
            "StartError: m",
        ),
    ],
)
def test_what_counts_as_a_failed_restore(status: dict[str, Any], why: str) -> None:
    dumped = {"checkpoint": {"mode": "kubelet"}}
    workload = admitted(restore_from=IMAGE, options=dumped)
    pod = {
        "metadata": {"annotations": {RESTORE_FROM: IMAGE}},
        "status": {"containerStatuses": [status]},
    }

    assert why_not_restored(workload, RUNNING_JOB, [pod]) == why
    started = replace(workload, started_at=1)
    alone = replace(workload, options=options_of({"checkpoint": {"mode": "application"}}))
    fresh = replace(workload, restore_from="")
    for other in (started, alone, fresh):
        assert why_not_restored(other, RUNNING_JOB, [pod]) == ""


def test_of_a_failed_job_without_pods_nobody_knows() -> None:
    workload = admitted(restore_from=IMAGE, options={"checkpoint": {"mode": "kubelet"}})

    assert "its pods are gone" in why_not_restored(workload, FAILED_JOB, [])
    assert why_not_restored(workload, RUNNING_JOB, []) == ""


def test_the_catalogue_leaves_out_what_failed_twice_and_drops_it_first() -> None:
    known = CheckpointEntries(tuple(a_checkpoint(n) for n in range(1, KEPT + 1)))
    once = known.fail("s3://b/3.tar", 7, "why")
    twice = once.fail("s3://b/3.tar", 8, "why")

    assert known.fail("s3://b/other.tar", 7, "why") == known
    assert once.fail("s3://b/3.tar", 7, "again") == once
    found = [newest(each.kept, 1) for each in (known, once, twice)]
    assert [each.generation for each in found if each] == [3, 3, 2]
    later = twice.keep(a_checkpoint(9), retain=KEPT, pinned="")
    assert [each.generation for each in later.dropped] == [3]


def test_work_that_was_carried_over_in_vain_is_told_as_lost() -> None:
    """Saved at 100, then at 190 of a run from 0 to 200: the later checkpoint is damaged."""
    runs = (
        Run(outcome="migrate", started_at=1, stopped_at=200, ended_at=210, lost_ms=10),
        Run(generation=1, outcome="migrate", why="restore", admitted_at=210,
            ended_at=230, stopped_at=200, lost_ms=0, back_to=100),
    )  # fmt: skip
    row = admitted(
        generation=2, runs=runs, created_at=0, admitted_at=230, dispatched_at=230,
        started_at=240, state=State.DISPATCHED,
        options=options_of({"checkpoint": {"mode": "kubelet"}}),
    )  # fmt: skip

    assert [run.lost_ms for run in undone(runs)] == [100, 0]
    found = recovery(row)
    assert (found.moves, found.lost_ms, found.standstill_ms, found.untold) == (1, 100, 40, 0)
    told = {
        kind: sum(s.ms for s in usage_intervals(row, 300) if s.kind is kind)
        for kind in IntervalKind
    }
    assert (told[IntervalKind.USEFUL], told[IntervalKind.REDONE], told[IntervalKind.MIGRATING]) == (
        99 + 60,
        100,
        40,
    )


def test_processes_go_on_at_the_same_kind_of_cpu_only(town: Town) -> None:
    node = town.runs("w", "kubelet")
    assert "nodeSelector" not in pods(town)[0]["spec"] or not (
        INTEL.keys() & pods(town)[0]["spec"]["nodeSelector"].keys()
    )
    town.saving = True

    town.hear(town.notice(node))
    (placeholder,) = town.kubernetes.list("Pod", selector="sluice.dev/placeholder=w")[0]
    town.pass_quietly(60)

    assert placeholder["spec"]["nodeSelector"].items() >= INTEL.items()
    (pod,) = pods(town)
    assert pod["spec"]["nodeSelector"].items() >= INTEL.items()
    assert {each.cpu for each in town.migrations.checkpoints("w")} == {"intel/5"}


def test_each_member_of_a_gang_goes_on_at_the_cpu_that_it_was_saved_on(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    metadata = town.kubernetes.objects["Node", "", node]["metadata"]
    metadata["labels"] |= {MANUFACTURER: "amd", GENERATION: "6"}
    town.observe()
    town.saving = True
    here = next(p["metadata"]["name"] for p in pods(town) if p["spec"]["nodeName"] == node)

    town.hear(town.notice(node))
    town.pass_quietly(90)

    makes = {p["metadata"]["name"]: p["spec"]["nodeSelector"][MANUFACTURER] for p in pods(town)}
    index = here.split("-")[-2]
    assert [makes[name] for name in sorted(makes)] == [
        "amd" if name.split("-")[-2] == index else "intel" for name in sorted(makes)
    ]


def test_an_application_goes_on_anywhere(town: Town) -> None:
    node = town.runs("w", "application")

    town.hear(town.notice(node))
    (placeholder,) = town.kubernetes.list("Pod", selector="sluice.dev/placeholder=w")[0]
    town.pass_quietly(60)

    assert not INTEL.keys() & (placeholder["spec"].get("nodeSelector") or {}).keys()
    assert not INTEL.keys() & (pods(town)[0]["spec"].get("nodeSelector") or {}).keys()


@pytest.mark.parametrize("labels", [{}, {MANUFACTURER: "aws"}, {GENERATION: "7"}])
def test_a_cpu_that_is_not_known_whole_binds_nobody(labels: dict[str, str]) -> None:
    assert cpu_of(labels) == ""
    assert node_labels("") == {}
    assert node_labels(cpu_of(INTEL)) == INTEL
