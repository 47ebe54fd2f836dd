"""`observe` marks in the records what a cluster did: the end, a loss, lateness, orphans, logs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sluice.core.clusters.cluster_state import PREPARED_MS, ClusterState
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload
from sluice.core.lifecycle.record_entries import StatusReason
from sluice.core.lifecycle.run import NO_MACHINE, Run
from sluice.errors import ClusterError
from sluice.usecases.reading.explain import settled
from sluice.usecases.running.cluster_events import SELECTOR
from sluice.usecases.running.observed_cluster import ObservedCluster

from tests.fakes import FakeKubernetes, MemoryLogs, MemoryWorkloads
from tests.unit.usecases.plane import NAMESPACE, Plane, a_workload, admitted
from tests.unit.usecases.world import CLUSTER, MANIFEST

JOB, POD = "w-w1-g0", "w-w1-g0-pod"
LATE = 900_000
SECOND = 1_000
PATIENCE_SECONDS = 10


@dataclass
class RecordingReads(MemoryWorkloads):
    read: list[str] = field(default_factory=list)

    def get_many(self, ids: Iterable[str]) -> list[Workload]:
        self.read += (wanted := list(ids))
        return super().get_many(wanted)


def set_status(plane: Plane, kind: str, name: str, **status: Any) -> None:
    found = plane.kubernetes.objects[kind, NAMESPACE, name]
    plane.kubernetes.objects[kind, NAMESPACE, name] = {**found, "status": status}


def no_pod_ready(plane: Plane) -> None:
    set_status(plane, "Job", JOB, ready=0)


@pytest.mark.parametrize(("code", "succeeded"), [(0, True), (3, False)])
def test_a_job_that_ended_finishes_its_workload_and_keeps_the_quota_for_admit(
    code: int, succeeded: bool
) -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB, exit_code=code)

    plane.look()

    record = plane.record()
    assert (record.state, record.result.succeeded) == (State.FINISHED, succeeded)
    assert record.result.exit_codes == {POD: {"main": code}}
    assert record.finished_at == plane.clock.now()
    assert record.reservation is not None
    assert ("exited with 3" in record.result.message) is not succeeded
    assert plane.logs.list("w1") == [f"0/{POD}/main"]


def test_a_job_that_ran_too_long_says_so_and_not_how_its_pods_obeyed() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB, exit_code=143)
    job = plane.kubernetes.objects["Job", NAMESPACE, JOB]
    job["spec"]["activeDeadlineSeconds"] = 60
    ended = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    set_status(plane, "Job", JOB, conditions=[ended])

    plane.look()

    message = "it ran longer than the 60 s of deadlines.maxRuntime (DeadlineExceeded)"
    assert plane.record().result.message == message


def test_the_end_of_an_array_says_which_of_its_members_did_what() -> None:
    plane = Plane()
    plane.dispatched()
    job = plane.kubernetes.objects["Job", NAMESPACE, JOB]
    job["spec"] |= {"completionMode": "Indexed", "completions": 12}
    failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
    indexes = {"completedIndexes": "0,2-4,7", "failedIndexes": "1,5-6"}
    set_status(plane, "Job", JOB, conditions=failed, **indexes)

    plane.look()

    assert plane.record().result.indexes == {
        "completed": "0,2-4,7",
        "failed": "1,5-6",
        "unfinished": "8-11",
    }


def test_a_run_starts_when_its_pods_were_ready_however_late_that_is_seen() -> None:
    plane = Plane()
    plane.dispatched()
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:04Z"}
    set_status(plane, "Pod", POD, phase="Running", conditions=[ready])
    at = int(datetime(2027, 1, 15, 8, 0, 4, tzinfo=UTC).timestamp() * 1000)
    assert at > plane.clock.now()
    plane.clock.time = at + 34 * SECOND

    plane.look()

    assert plane.record().started_at == at + 999


def test_a_run_ends_when_its_job_did_however_late_that_is_seen() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    at = int(datetime(2027, 1, 15, 8, 0, 4, tzinfo=UTC).timestamp() * 1000)
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:04Z"}
    set_status(plane, "Job", JOB, conditions=[ended])
    plane.clock.time = at + 34 * SECOND

    plane.look()

    assert plane.record().finished_at == at + 999


def test_a_run_never_ends_before_it_was_dispatched_whatever_other_clocks_say() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-15T08:00:04Z"}
    set_status(plane, "Job", JOB, conditions=[ended])

    plane.look()

    assert plane.record().finished_at == plane.record().dispatched_at > 0


def test_looking_again_finishes_nothing_twice() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    plane.look()
    before = plane.record()
    plane.clock.pass_ms(5 * SECOND)

    plane.look()

    assert plane.record() == before


def test_a_job_whose_pods_are_ready_has_started() -> None:
    plane = Plane()
    plane.dispatched()
    no_pod_ready(plane)
    plane.look()
    assert plane.record().started_at == 0

    set_status(plane, "Job", JOB, ready=1)
    plane.look()

    assert plane.record().started_at == plane.clock.now()


def test_a_run_notes_its_share_of_its_machine_and_since_when() -> None:
    plane = Plane()
    plane.dispatched()
    bound = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    ]
    set_status(plane, "Pod", POD, phase="Running", conditions=bound)
    pod = plane.kubernetes.objects["Pod", NAMESPACE, POD]
    pod["spec"]["nodeName"] = "node-1"
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    machine: Any = {"instance": "i-1", "node": "node-1", "capacity_type": "spot", "price": 1.2}
    gives: Any = {"allocatable": {"cpu": "4", "memory": "1000Gi"}}
    plane.nodes.put_many(CLUSTER, [InventoryRow("i-0", "node-1", seen_at=1, price=9)])
    plane.nodes.put_many(CLUSTER, [InventoryRow(**machine, **gives, seen_at=2)])

    plane.look()
    running = plane.record().machine
    plane.kubernetes.finish(NAMESPACE, JOB)
    plane.look()
    (run,) = plane.record().runs

    assert (running.bound_at, running.capacity) == (1_800_000_000_000, "spot")
    assert running.usd_per_hour == pytest.approx(0.3)
    assert run.usd_per_hour == running.usd_per_hour
    assert (run.flavor, run.capacity) == ("spot", "spot")
    assert run.on_demand_usd_per_hour is None, "what nobody knows is not told"
    assert plane.record().machine == NO_MACHINE


def test_a_node_is_counted_again_until_it_has_its_labels() -> None:
    state = ClusterState(uncounted={"new", "gone"})

    state.mark_counted(
        ["new", "old"],
        [InventoryRow(node="new", type=""), InventoryRow(node="old", type="c5.large")],
    )
    assert (state.uncounted, state.counted) == ({"new"}, {"old", "gone"})

    state.mark_counted(["new", "old"], [InventoryRow(node="new", type="c5.large")])
    assert (state.uncounted, state.counted) == (set(), {"old", "gone", "new"})


def test_a_job_that_vanished_is_requeued_and_says_so() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.delete("Job", NAMESPACE, JOB)

    plane.look()

    record = plane.record()
    assert record.state is State.RECLAIMING
    assert record.intent is not None
    assert (record.intent.kind, record.intent.reason) == (IntentKind.REQUEUE, "RECOVERY:JobLost")
    assert CLUSTER in record.intent.message


def test_a_workload_is_not_lost_while_a_pod_of_it_runs() -> None:
    plane = Plane()
    before = plane.dispatched()
    del plane.kubernetes.objects["Job", NAMESPACE, JOB]

    plane.look()

    assert plane.record() == before


def test_a_job_of_another_uid_does_not_speak_for_the_workload() -> None:
    plane = Plane()
    plane.put(admitted(state=State.DISPATCHED, uid="uid-of-a-job-that-is-gone"))
    labels = {"sluice.dev/workload": "w1", "sluice.dev/generation": "0"}
    metadata = {"name": JOB, "namespace": NAMESPACE, "labels": labels}
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    plane.kubernetes.create({**MANIFEST, "metadata": metadata, "status": done})

    plane.look()

    record = plane.record()
    assert record.state is State.RECLAIMING
    assert record.intent is not None
    assert record.intent.reason == "RECOVERY:JobLost"
    assert plane.job() is None, "left by a stale dispatcher, so it is removed"


@pytest.mark.parametrize(
    ("workload", "stays"),
    [
        (None, False),
        (a_workload(), False),
        (a_workload(state=State.CANCELLED), False),
        (admitted(generation=1), False),
        (admitted(), True),
    ],
    ids=["no record", "pending", "cancelled", "another generation", "about to be claimed"],
)
def test_jobs_that_no_record_stands_for_are_removed(workload: Any, stays: bool) -> None:
    plane = Plane()
    if workload is not None:
        plane.put(workload)
    labels = {"sluice.dev/workload": "w1", "sluice.dev/generation": "0"}
    metadata = {"name": JOB, "namespace": NAMESPACE, "labels": labels}
    plane.kubernetes.create({**MANIFEST, "metadata": metadata})

    plane.look()

    assert (plane.job() is not None) is stays


def test_jobs_of_others_are_none_of_our_business() -> None:
    plane = Plane()
    metadata = {"name": "theirs", "namespace": NAMESPACE, "labels": {"app": "x"}}
    plane.kubernetes.create({**MANIFEST, "metadata": metadata})

    plane.look()

    assert plane.kubernetes.get("Job", NAMESPACE, "theirs") is not None


def test_a_gang_that_is_not_ready_in_time_goes_back_to_its_queue() -> None:
    plane = Plane()
    plane.dispatched()
    no_pod_ready(plane)
    plane.clock.pass_ms(LATE)
    plane.look()
    assert plane.record().state is State.DISPATCHED

    plane.clock.pass_ms(1)
    plane.look()

    record = plane.record()
    assert record.state is State.RECLAIMING
    assert record.intent is not None
    assert record.intent.kind is IntentKind.REQUEUE
    assert record.intent.reason == "CAPACITY:WaitingForNode"
    wait = record.intent.not_before - plane.clock.now()
    assert 60 * SECOND <= wait <= 72 * SECOND


@pytest.mark.parametrize(
    ("outcome", "started_at", "late"),
    [("migrate", 0, True), ("migrate", 5, False), ("requeue", 0, False)],
    ids=["moved while it started", "moved while it ran", "came back from its queue"],
)
def test_a_move_during_the_start_does_not_begin_the_timeout_anew(
    outcome: str, started_at: int, late: bool
) -> None:
    plane = Plane()
    record = plane.dispatched()
    before = record.dispatched_at - LATE
    run = Run(dispatched_at=before, started_at=started_at, ended_at=before + LATE, outcome=outcome)
    plane.workloads.rows["w1"] = replace(record, runs=(run,))
    no_pod_ready(plane)
    plane.look()
    assert plane.record().state is State.DISPATCHED, "the new machine takes its time, too"
    plane.clock.pass_ms(300_001)

    plane.look()

    assert (plane.record().state is State.RECLAIMING) is late


@pytest.mark.parametrize(("times", "seconds"), [(0, 60), (1, 120), (3, 480), (6, 3600), (99, 3600)])
def test_the_back_off_doubles_up_to_an_hour(times: int, seconds: int) -> None:
    plane = Plane()
    record = plane.dispatched()
    late = Run(outcome="requeue", why="PodsReadyTimeout")
    plane.workloads.rows["w1"] = replace(record, runs=times * (late,))
    no_pod_ready(plane)
    plane.clock.pass_ms(LATE + 1)

    plane.look()

    intent = plane.record().intent
    assert intent is not None
    assert 1 <= (intent.not_before - plane.clock.now()) / (seconds * SECOND) <= 1.2


def test_a_gang_that_runs_is_never_late() -> None:
    plane = Plane()
    plane.dispatched()
    plane.look()
    assert plane.record().started_at

    no_pod_ready(plane)
    plane.clock.pass_ms(10 * LATE)
    plane.look()

    assert plane.record().state is State.DISPATCHED


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_fails_the_workload_at_once(reason: str) -> None:
    plane = Plane()
    plane.dispatched()
    no_pod_ready(plane)
    waiting = {"reason": reason, "message": "no such tag"}
    containers = [{"name": "main", "state": {"waiting": waiting}}]
    set_status(plane, "Pod", POD, phase="Pending", containerStatuses=containers)

    plane.look()

    intent = plane.record().intent
    assert intent is not None
    assert (intent.kind, intent.reason) == (IntentKind.FAIL, "MISCONFIGURATION:ImagePull")
    assert intent.message == f"{reason}: no such tag"


def cannot_start(plane: Plane, reason: str, message: str) -> None:
    no_pod_ready(plane)
    waiting = {"reason": reason, "message": message}
    containers = [{"name": "main", "state": {"waiting": waiting}}]
    set_status(plane, "Pod", POD, phase="Pending", containerStatuses=containers)
    plane.look()


@pytest.mark.parametrize(
    "word", ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"]
)
def test_a_container_that_cannot_be_made_is_told_and_waited_for(word: str) -> None:
    plane = Plane()
    plane.dispatched()

    cannot_start(plane, word, 'secret "token" not found')

    told = plane.record()
    assert told.state is State.DISPATCHED
    advice = "create secret token in its namespace, or name another one"
    message = f'{word}: container main: secret "token" not found; {advice}'
    assert told.reason == StatusReason("MISCONFIGURATION:ContainerStart", message)
    assert message in settled(told)

    cannot_start(plane, word, "another attempt, other words")
    assert plane.record() == told, "told once, or every attempt would be a line of the timeline"

    set_status(plane, "Job", JOB, ready=1)
    plane.look()
    assert plane.record().started_at
    assert not plane.record().reason


def test_a_container_that_could_never_be_made_returns_to_its_queue_with_that_reason() -> None:
    plane = Plane()
    plane.dispatched()
    plane.clock.pass_ms(LATE + 1)

    cannot_start(plane, "CreateContainerConfigError", 'secret "token" not found')

    intent = plane.record().intent
    assert intent is not None
    assert (intent.kind, intent.reason) == (IntentKind.REQUEUE, "MISCONFIGURATION:ContainerStart")
    assert 'secret "token" not found' in intent.message


def warn(plane: Plane, reason: str, message: str, at: str = "2026-11-21T08:00:00Z") -> None:
    """As the kubelet and the attach controller tell of a pod."""
    uid = plane.kubernetes.objects["Pod", NAMESPACE, POD]["metadata"]["uid"]
    number = next(plane.kubernetes.numbers)
    plane.kubernetes.create(
        {
            "kind": "Event",
            "metadata": {"name": f"event-{number}", "namespace": NAMESPACE},
            "involvedObject": {"uid": uid},
            "reason": reason,
            "message": message,
            "lastTimestamp": at,
        }
    )


def in_preparation(plane: Plane) -> None:
    """The pod has a node, which does not start it."""
    plane.dispatched()
    no_pod_ready(plane)
    waiting = {"reason": "ContainerCreating"}
    containers = [{"name": "main", "state": {"waiting": waiting}}]
    set_status(plane, "Pod", POD, phase="Pending", containerStatuses=containers)
    plane.clock.pass_ms(11 * SECOND)


@pytest.mark.parametrize(
    ("word", "said", "code", "advice"),
    [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "keys" : secret "token" not found',
            "MISCONFIGURATION:VolumeMount",
            "; create secret token in its namespace, or name another one",
        ),
        (
            "FailedMount",
            "ConfigMap 'settings' has no key 'a.ini'",
            "MISCONFIGURATION:VolumeMount",
            "; add the key a.ini to ConfigMap settings, or name another one",
        ),
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "c" : references non-existent config key: a.ini',
            "MISCONFIGURATION:VolumeMount",
            "; add the key a.ini, or name another one",
        ),
        (
            "FailedMount",
            "driver name s3.csi.aws.com not found in the list of registered CSI drivers",
            "MISCONFIGURATION:VolumeMount",
            "; the cluster needs the CSI driver s3.csi.aws.com",
        ),
        (
            "FailedAttachVolume",
            'AttachVolume.Attach failed for volume "pvc-1" : rpc error: code = Internal',
            "MISCONFIGURATION:VolumeMount",
            "",
        ),
        (
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: plugin type=aws-cni failed (add): no free address",
            "PLATFORM:PodSandbox",
            "",
        ),
    ],
)
def test_what_a_node_cannot_prepare_is_told_with_what_to_change(
    word: str, said: str, code: str, advice: str
) -> None:
    plane = Plane()
    in_preparation(plane)
    warn(plane, "BackOff", "of no concern", "2026-11-21T09:00:00Z")
    warn(plane, word, said)

    plane.look()

    told = plane.record()
    assert told.state is State.DISPATCHED
    assert told.reason == StatusReason(code, f"{word}: {said}{advice}")
    plane.clock.pass_ms(LATE)
    plane.look()
    intent = plane.record().intent
    assert intent is not None
    assert (intent.kind, intent.reason) == (IntentKind.REQUEUE, code)
    assert said in intent.message


def test_the_cause_counts_more_than_its_repetition_and_the_newest_more_than_the_old() -> None:
    plane = Plane()
    in_preparation(plane)
    warn(plane, "FailedMount", 'secret "old" not found', "2026-11-21T07:00:00Z")
    warn(plane, "FailedMount", 'secret "new" not found', "2026-11-21T08:00:00Z")
    timed_out = "Unable to attach or mount volumes: unmounted volumes=[v]: timed out waiting"
    warn(plane, "FailedMount", timed_out, "2026-11-21T09:00:00Z")

    plane.look()

    assert 'secret "new" not found' in plane.record().reason.message


def test_a_pod_that_is_prepared_without_a_warning_is_waited_for() -> None:
    plane = Plane()
    in_preparation(plane)
    warn(plane, "Scheduled", "of no concern")

    plane.look()

    assert not plane.record().reason


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_warning_from_before_a_pod_ran_is_of_no_concern(phase: str) -> None:
    plane = Plane()
    in_preparation(plane)
    warn(plane, "FailedMount", 'secret "token" not found')
    running = [{"name": "main", "state": {"running": {}}}]
    set_status(plane, "Pod", POD, phase=phase, containerStatuses=running)

    plane.look()

    assert not plane.record().reason


def test_events_are_not_asked_for_before_a_node_had_its_time() -> None:
    plane = Plane()
    in_preparation(plane)
    plane.clock.pass_ms(-5 * SECOND)
    warn(plane, "FailedMount", 'secret "token" not found')

    plane.look()

    assert not plane.record().reason


def test_events_that_may_not_be_read_hinder_nothing() -> None:
    class Closed(FakeKubernetes):
        def list(self, kind: str, **options: str) -> Any:
            if kind == "Event":
                raise ClusterError('cannot list resource "events"', 403)
            return super().list(kind, **options)

    plane = Plane(kubernetes=Closed())
    in_preparation(plane)

    observe = plane.observe()
    observe.reconcile(CLUSTER, plane.kubernetes)

    assert [str(problem) for problem in observe.problems.take()] == [
        'cannot list resource "events"'
    ]
    assert plane.record().state is State.DISPATCHED


def test_the_events_of_a_pod_are_asked_for_twice_a_minute_and_of_many_a_few_at_a_time() -> None:
    state, now = ClusterState(), 100 * SECOND
    records = [
        admitted(f"w{n}", state=State.DISPATCHED, uid="u", dispatched_at=1) for n in range(30)
    ]
    for workload in records:
        labels = {"sluice.dev/workload": workload.id, "sluice.dev/generation": "0"}
        metadata = {"name": workload.id, "uid": workload.id, "labels": labels}
        pod: dict[str, Any] = {
            "metadata": metadata,
            "spec": {"nodeName": "n"},
            "status": {"phase": "Pending"},
        }
        state.update("Pod", "ADDED", pod)

    asked: list[list[str]] = [[], [], []]
    for turn, at in enumerate((now, now + 1, now + 31 * SECOND)):
        for pod in state.list_slow_pods(records, at):
            state.note_warning(pod, None, at)
            asked[turn].append(pod["metadata"]["uid"])

    assert [len(each) for each in asked] == [20, 10, 20]
    assert not set(asked[0]) & set(asked[1])


def test_a_claim_that_is_not_there_is_told_before_there_is_a_node() -> None:
    plane = Plane()
    plane.dispatched()
    no_pod_ready(plane)
    said = '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    set_status(plane, "Pod", POD, phase="Pending", conditions=[unscheduled | {"message": said}])

    plane.look()
    assert not plane.record().reason, "Sluice's own volumes take a moment, too"
    plane.clock.pass_ms(PREPARED_MS + 1)
    plane.look()

    told = plane.record().reason
    assert told.code == "MISCONFIGURATION:VolumeMount"
    assert told.message.endswith(
        "create persistentvolumeclaim data in its namespace, or name another one"
    )


def test_an_image_that_was_pulled_with_a_secret_names_it() -> None:
    plane = Plane()
    plane.dispatched()
    pod = plane.kubernetes.objects["Pod", NAMESPACE, POD]
    pod["spec"]["imagePullSecrets"] = [{"name": "registry"}]

    cannot_start(plane, "ErrImagePull", "401 Unauthorized")

    intent = plane.record().intent
    assert intent is not None
    assert intent.message.endswith(
        "401 Unauthorized; pulled with the secret registry: see that it is right"
    )


def test_a_pod_that_waits_for_other_reasons_is_waited_for() -> None:
    plane = Plane()
    plane.dispatched()
    no_pod_ready(plane)
    waiting = {"reason": "ContainerCreating"}
    containers = [{"name": "main", "state": {"waiting": waiting}}]
    set_status(plane, "Pod", POD, phase="Pending", containerStatuses=containers)

    plane.look()

    assert plane.record().state is State.DISPATCHED


def test_a_reclaimed_workload_is_gone_when_its_job_and_pods_are() -> None:
    plane = Plane()
    intent = Intent(IntentKind.REQUEUE, "X")
    plane.workloads.apply([lifecycle.reclaim(plane.dispatched(), intent)])
    plane.look()
    assert not plane.record().gone

    plane.kubernetes.delete("Job", NAMESPACE, JOB)
    plane.look()

    assert plane.record().gone


@pytest.mark.parametrize(
    "workload",
    [
        admitted(),
        admitted(
            state=State.RECLAIMING, uid="u", intent=Intent(IntentKind.CANCEL, "CANCELLED:User")
        ),
    ],
    ids=["not dispatched", "not deleted"],
)
def test_a_lost_command_is_sent_again(workload: Any) -> None:
    plane = Plane()
    plane.put(workload)
    if workload.uid:
        labels = {"sluice.dev/workload": "w1", "sluice.dev/generation": "0"}
        metadata = {"name": JOB, "namespace": NAMESPACE, "labels": labels}
        plane.kubernetes.create({**MANIFEST, "metadata": metadata})
        plane.workloads.rows["w1"] = replace(workload, uid=plane.job()["metadata"]["uid"])  # type: ignore[index]
    plane.clock.pass_ms(16 * SECOND)

    plane.look()

    assert plane.commands.sent == [(CLUSTER, ["w1"])]


@pytest.mark.parametrize(("phase", "asked"), [("Failed", True), ("Running", False)])
def test_a_deleted_job_that_only_ended_pods_keep_is_looked_after(phase: str, asked: bool) -> None:
    plane = Plane()
    plane.workloads.apply([lifecycle.reclaim(plane.dispatched(), Intent(IntentKind.CANCEL, "X"))])
    job = plane.kubernetes.objects["Job", NAMESPACE, JOB]
    deleted = {**job["metadata"], "deletionTimestamp": "2026-11-21T08:00:00Z"}
    plane.kubernetes.objects["Job", NAMESPACE, JOB] = {**job, "metadata": deleted}
    set_status(plane, "Pod", POD, phase=phase)

    plane.look()

    assert plane.commands.sent == ([(CLUSTER, ["w1"])] if asked else [])


def test_a_command_on_its_way_is_not_repeated() -> None:
    plane = Plane()
    plane.put(admitted())
    plane.clock.pass_ms(14 * SECOND)

    plane.look()

    assert plane.commands.sent == []


def test_a_late_dispatch_is_asked_for_once_by_each_observer() -> None:
    plane = Plane()
    plane.put(admitted())
    plane.clock.pass_ms(16 * SECOND)
    observe = plane.observe()
    view = observe.reconcile(CLUSTER, plane.kubernetes)

    observe.check(CLUSTER, plane.kubernetes, view)
    assert plane.commands.sent == [(CLUSTER, ["w1"])]

    observe.reconcile(CLUSTER, plane.kubernetes)
    assert plane.commands.sent == [(CLUSTER, ["w1"])] * 2


def test_a_cluster_that_does_not_answer_leaves_the_records() -> None:
    plane = Plane()
    before = plane.dispatched()

    class Silent(FakeKubernetes):
        def list(self, kind: str, **_: Any) -> Any:
            raise ClusterError("does not answer")

        def cluster(self, name: str) -> FakeKubernetes:
            return self

    with pytest.raises(ClusterError):
        plane.observe(Silent())(CLUSTER, owner="me", until=plane.clock.now() + 1)

    assert plane.record() == before
    assert plane.leases.acquire(CLUSTER, "next", now=plane.clock.now(), until=1), "lease given back"


def test_a_new_observer_takes_over_at_once_and_the_former_one_cannot_renew() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    now = plane.clock.now()
    assert plane.leases.acquire(CLUSTER, "former", now=now, until=now + 8 * SECOND)

    taken: list[bool] = []

    class Asking(FakeKubernetes):
        """Asks, while the new observer is at work, whether the former one may go on."""

        def list(self, kind: str, **options: Any) -> Any:
            taken.append(
                plane.leases.acquire(CLUSTER, "former", now=now + 1, until=now + 8 * SECOND)
            )
            return plane.kubernetes.list(kind, **options)

        def cluster(self, name: str) -> FakeKubernetes:
            return self

    plane.observe(Asking())(CLUSTER, owner="me", until=now + 1)

    assert plane.record().state is State.FINISHED
    assert taken
    assert not any(taken)


def test_events_of_a_watch_are_marked_as_they_come() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    finished = plane.kubernetes.objects.pop(("Job", NAMESPACE, JOB))
    set_status(plane, "Pod", POD, phase="Running")
    plane.kubernetes.objects["Job", NAMESPACE, JOB] = {**finished, "status": {"ready": 1}}

    marked = threading.Event()

    class Watched(FakeKubernetes):
        """Tells of the end of the Job only through its watch."""

        def watch(self, kind: str, **_: Any) -> Any:
            if kind == "Job":
                yield "MODIFIED", finished
            marked.wait(PATIENCE_SECONDS)

        def cluster(self, name: str) -> FakeKubernetes:
            return self

    watched = Watched(objects=plane.kubernetes.objects, numbers=itertools.count(100))
    observe = threading.Thread(
        target=plane.observe(watched),
        args=(CLUSTER,),
        kwargs={"owner": "me", "until": plane.clock.now() + 60 * SECOND},
    )
    observe.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while plane.record().state is not State.FINISHED and time.monotonic() < deadline:
        time.sleep(0.01)
    marked.set()
    observe.join()

    assert plane.record().state is State.FINISHED


def test_a_machine_that_pods_land_on_stands_in_the_inventory_at_once() -> None:
    plane = Plane()
    plane.dispatched()
    written = threading.Event()

    class Growing(FakeKubernetes):
        """While it is watched, the pod comes up on a machine that was not there before."""

        def watch(self, kind: str, **_: Any) -> Any:
            if kind == "Pod":
                pod = self.objects["Pod", NAMESPACE, POD]
                self.objects["Node", "", pod["spec"]["nodeName"]]["spec"]["unschedulable"] = True
                new = self.node()
                plane.clock.pass_ms(2 * SECOND)
                yield "MODIFIED", {**pod, "spec": {**pod["spec"], "nodeName": new}}
            written.wait(PATIENCE_SECONDS)

        def cluster(self, name: str) -> FakeKubernetes:
            return self

    growing = Growing(objects=plane.kubernetes.objects, numbers=itertools.count(100))
    observe = threading.Thread(
        target=plane.observe(growing),
        args=(CLUSTER,),
        kwargs={"owner": "me", "until": plane.clock.now() + 60 * SECOND},
    )
    observe.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not plane.nodes.find(CLUSTER, "i-100") and time.monotonic() < deadline:
        time.sleep(0.01)
    written.set()
    observe.join()

    assert plane.nodes.find(CLUSTER, "i-100")


def test_what_came_before_a_watch_ended_is_marked_too() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    finished = plane.kubernetes.objects.pop(("Job", NAMESPACE, JOB))
    set_status(plane, "Pod", POD, phase="Running")
    plane.kubernetes.objects["Job", NAMESPACE, JOB] = {**finished, "status": {"ready": 1}}

    told = threading.Event()

    class Broken(FakeKubernetes):
        """Tells more than one look takes, the end of the Job last, and breaks off."""

        def watch(self, kind: str, *, selector: str, **_: Any) -> Any:
            if kind == "Job" and selector == SELECTOR:
                yield from [("MODIFIED", plane.kubernetes.objects["Job", NAMESPACE, JOB])] * 2_000
                yield "MODIFIED", finished
                told.set()
                raise ClusterError("the connection broke")
            told.wait(PATIENCE_SECONDS)  # the first watch that ends would end them all

    broken = Broken(objects=plane.kubernetes.objects, numbers=itertools.count(100))
    plane.observe(broken)(CLUSTER, owner="me", until=plane.clock.now() + 60 * SECOND)

    assert plane.record().state is State.FINISHED


@pytest.mark.parametrize(("age", "asked"), [(60, True), (600, False)], ids=["lately", "long ago"])
def test_jobs_that_ended_long_ago_cost_no_more_reads(age: int, asked: bool) -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    plane.look()
    ended = datetime.fromtimestamp(plane.clock.now() / 1000 - age, UTC).isoformat()
    said = {"type": "Complete", "status": "True", "lastTransitionTime": ended}
    set_status(plane, "Job", JOB, conditions=[said])
    plane.workloads = RecordingReads(plane.workloads.rows)

    plane.look()

    assert ("w1" in plane.workloads.read) is asked
    assert plane.job() is not None


def test_a_log_that_cannot_be_read_says_so_instead() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)

    class Mute(FakeKubernetes):
        def logs(self, *_: Any, **__: Any) -> bytes:
            raise ClusterError("the node is away")

    mute = Mute(objects=plane.kubernetes.objects)
    observe = plane.observe(mute)
    observe.reconcile(CLUSTER, mute)

    assert plane.record().state is State.FINISHED
    assert b"the node is away" in plane.logs.get("w1", 0, POD, "main")
    assert [str(problem) for problem in observe.problems.take()] == ["the node is away"]


def test_a_log_that_could_not_be_read_is_read_at_the_next_check() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)

    class Hesitant(FakeKubernetes):
        refusals = 1

        def logs(self, *_: Any, **__: Any) -> bytes:
            if self.refusals:
                self.refusals -= 1
                raise ClusterError("the node does not answer in time", 500)
            return b"out of cheese\n"

    hesitant = Hesitant(objects=plane.kubernetes.objects)
    observe = plane.observe(hesitant)
    view = observe.reconcile(CLUSTER, hesitant)
    assert observe.logs.pending

    observe.check(CLUSTER, hesitant, view)

    assert plane.logs.get("w1", 0, POD, "main") == b"out of cheese\n"
    assert not observe.logs.pending


def test_a_second_observer_keeps_the_log_of_a_pod_that_is_gone() -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB, exit_code=3)
    view = plane.observe().reconcile(CLUSTER, plane.kubernetes)
    printed = plane.logs.get("w1", 0, POD, "main")

    class Deleted(FakeKubernetes):
        def logs(self, *_: Any, **__: Any) -> bytes:
            raise ClusterError(f"pods {POD!r} not found", 404)

    later = plane.observe()
    later.logs.start_recent(Deleted(), view.state, [plane.record()], 0)

    assert plane.logs.get("w1", 0, POD, "main") == printed
    assert not later.logs.pending


def test_a_run_that_is_stopped_leaves_its_log_as_far_as_it_came() -> None:
    class Talking(FakeKubernetes):
        said = b"working\n"

        def logs(self, *_: Any, **__: Any) -> bytes:
            if not self.said:
                raise ClusterError("the pod is gone")
            return self.said

    plane = Plane()
    plane.dispatched()
    talking = Talking(objects=plane.kubernetes.objects)
    observe = plane.observe(talking)
    pod = plane.kubernetes.objects["Pod", NAMESPACE, POD]
    told = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}}
    ended = {**told, "status": {"phase": "Failed"}}

    def kept_after(*events: tuple[str, str, Any]) -> bytes:
        observe.mark(CLUSTER, talking, ObservedCluster(), events)
        for copy in list(observe.logs.last_copies.values()):
            copy.result()
        return plane.logs.get("w1", 0, POD, "main")

    assert kept_after(("MODIFIED", "Pod", told)) == b"working\n"
    talking.said = b"working\nsaved\n"
    assert kept_after(("MODIFIED", "Pod", ended)) == b"working\nsaved\n"
    talking.said = b""
    assert kept_after(("MODIFIED", "Pod", ended)) == b"working\nsaved\n"
    assert not observe.problems.take()


def test_pods_that_are_removed_after_their_end_are_not_read_again() -> None:
    plane = Plane()
    plane.dispatched()
    observe = plane.observe()
    pod = plane.kubernetes.objects["Pod", NAMESPACE, POD]
    metadata = {**pod["metadata"], "deletionTimestamp": "now"}

    removed = {**pod, "metadata": metadata, "status": {"phase": "Succeeded"}}
    observe.mark(CLUSTER, plane.kubernetes, ObservedCluster(), [("MODIFIED", "Pod", removed)])

    assert not observe.logs.last_copies


def test_a_bucket_that_takes_no_logs_is_told_and_hinders_nothing() -> None:
    class Full(MemoryLogs):
        def put(self, *_: Any) -> None:
            raise PermissionError("not authorized to perform: s3:PutObject")

    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB)
    plane.logs = Full()
    observe = plane.observe()

    observe.reconcile(CLUSTER, plane.kubernetes)

    assert plane.record().state is State.FINISHED
    assert "s3:PutObject" in str(observe.problems.take()[0])


def test_machines_of_ec2_are_counted_with_what_they_hold() -> None:
    plane = Plane()
    plane.dispatched()
    node = plane.kubernetes.objects["Pod", NAMESPACE, POD]["spec"]["nodeName"]
    key = ("Node", "", node)
    plane.kubernetes.objects.pop(key, None)
    plane.kubernetes.create(
        {
            "kind": "Node",
            "metadata": {"name": node, "labels": {"node.kubernetes.io/instance-type": "m5.large"}},
            "spec": {"providerID": "aws:///us-east-1a/i-0abc"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    plane.kubernetes.create(
        {"kind": "Node", "metadata": {"name": "laptop"}, "spec": {}, "status": {}}
    )

    plane.look()

    (row,) = plane.nodes.of(CLUSTER)
    assert (row.instance, row.node, row.type, row.ready) == (
        "i-0abc", node, "m5.large", True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failed_at", "deleted_at", "finished"),
    [
        ("2026-11-20T10:00:05Z", "2026-11-20T10:00:05Z", False),
        ("", "2026-11-20T10:00:05Z", False),
        ("2026-11-20T10:00:04Z", "2026-11-20T10:00:05Z", True),
    ],
)
def test_a_job_that_failed_because_it_was_deleted_has_not_finished_its_workload(
    failed_at: str, deleted_at: str, finished: bool
) -> None:
    plane = Plane()
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, JOB, exit_code=143)
    job = plane.kubernetes.objects["Job", NAMESPACE, JOB]
    if failed_at:
        job["status"]["conditions"][0]["lastTransitionTime"] = failed_at
    deleted = {**job["metadata"], "deletionTimestamp": deleted_at}
    plane.kubernetes.objects["Job", NAMESPACE, JOB] = {**job, "metadata": deleted}

    plane.look()  # the record still says DISPATCHED, as a stale one would

    assert (plane.record().state is State.FINISHED) is finished
