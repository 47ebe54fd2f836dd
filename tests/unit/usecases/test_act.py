"""`act` makes a cluster match the records: create, claim, un-suspend, delete; twice is fine."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import happenings
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.core.lifecycle.record_entries import NO_REASON, StatusReason
from sluice.errors import ClusterError, ClusterForbidden, ManifestMissing

from tests.fakes import FakeKubernetes
from tests.unit.usecases.plane import NAMESPACE, Plane, a_workload, admitted
from tests.unit.usecases.world import CLUSTER, MANIFEST

CANCEL = Intent(IntentKind.CANCEL, "CANCELLED:User", "enough", "me")


def a_foreign_job(name: str = "w-w1-g0", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {**MANIFEST, "metadata": metadata, "spec": {**MANIFEST["spec"], "suspend": True}}


def our_labels(generation: int = 0) -> dict[str, str]:
    return {"sluice.dev/workload": "w1", "sluice.dev/generation": str(generation)}


def test_an_admitted_workload_is_created_claimed_and_then_started() -> None:
    plane = Plane()
    plane.put(admitted())

    plane.act()(CLUSTER, ["w1"])

    record, job = plane.record(), plane.job()
    assert job is not None
    assert (record.state, record.uid) == (State.DISPATCHED, job["metadata"]["uid"])
    assert record.dispatched_at == plane.clock.now()
    assert job["spec"]["suspend"] is False
    assert job["metadata"]["labels"]["sluice.dev/workload"] == "w1"
    assert plane.observers.woken == [CLUSTER]


def test_a_job_is_suspended_until_it_is_claimed() -> None:
    plane = Plane()
    plane.put(admitted())
    made: list[bool] = []

    class Witness(FakeKubernetes):
        def create(self, document: dict[str, Any]) -> Any:
            if document["kind"] == "Job":
                made.append(document["spec"]["suspend"])
            return super().create(document)

        def patch(self, *args: Any, **how: Any) -> Any:
            assert plane.record().state is State.DISPATCHED, "started before it was claimed"
            return super().patch(*args, **how)

    witness = Witness()
    plane.act(witness)(CLUSTER, ["w1"])

    assert made == [True]
    assert witness.started == ["w-w1-g0"]


def test_the_same_command_again_changes_nothing() -> None:
    plane = Plane()
    before = plane.dispatched()

    for _ in range(3):
        plane.act()(CLUSTER, ["w1"])

    assert plane.record() == before
    assert plane.kubernetes.started == ["w-w1-g0"]


def test_a_right_that_we_lack_is_told_in_the_record_once_and_forgotten_with_the_claim() -> None:
    plane, kubernetes = Plane(), Refusing()
    kubernetes.error = ClusterForbidden('cannot create resource "jobs"', 403)
    plane.put(admitted())

    for _ in range(2):
        with pytest.raises(ClusterForbidden):
            plane.act(kubernetes)(CLUSTER, ["w1"])

    record = plane.record()
    told = StatusReason("MISCONFIGURATION:MissingRight", 'cannot create resource "jobs"')
    assert (record.state, record.reason) == (State.ADMITTED, told)
    assert len(plane.workloads.changed) == 2  # the record itself, and one remark
    lines = [*happenings(*plane.workloads.changed[-1], 1)]
    assert [(line.what, line.message) for line in lines] == [("Hindered", told.message)]

    plane.act()(CLUSTER, ["w1"])

    assert (plane.record().state, plane.record().reason) == (State.DISPATCHED, NO_REASON)


def test_one_whose_manifest_is_not_there_does_not_keep_its_neighbours() -> None:
    plane = Plane()
    plane.put(admitted())
    plane.put(admitted("w2"))
    del plane.manifests.rows[plane.record().manifest_key]

    with pytest.raises(ManifestMissing):  # the command comes again
        plane.act()(CLUSTER, ["w1", "w2"])

    assert plane.record("w2").state is State.DISPATCHED


def test_what_is_refused_for_one_workload_is_done_for_its_neighbours() -> None:
    class Partial(FakeKubernetes):
        def create(self, document: dict[str, Any]) -> Any:
            if document["metadata"]["name"] == "w-w1-g0":
                raise ClusterForbidden('cannot create resource "jobs" in the namespace "red"', 403)
            return super().create(document)

    plane, kubernetes = Plane(), Partial()
    plane.put(admitted())
    plane.put(admitted("w2"))

    with pytest.raises(ClusterForbidden):
        plane.act(kubernetes)(CLUSTER, ["w1", "w2"])

    assert plane.record("w1").state is State.ADMITTED
    assert plane.record("w2").state is State.DISPATCHED


def test_a_kind_that_the_cluster_does_not_know_ends_the_workload_with_the_reason() -> None:
    plane, kubernetes = Plane(), Refusing()
    kubernetes.error = ClusterError("404 page not found", 404)
    plane.put(admitted())

    plane.act(kubernetes)(CLUSTER, ["w1"])

    intent = plane.record().intent
    assert intent is not None
    assert (intent.kind, intent.reason) == (IntentKind.FAIL, "MISCONFIGURATION:UnsupportedKind")


def test_a_job_of_a_crashed_dispatcher_is_adopted() -> None:
    plane = Plane()
    plane.put(admitted())
    left = plane.kubernetes.create(a_foreign_job(**our_labels()))
    assert isinstance(left, dict)

    plane.act()(CLUSTER, ["w1"])

    assert plane.record().uid == left["metadata"]["uid"]
    assert plane.kubernetes.started == ["w-w1-g0"]


def test_a_job_that_is_being_deleted_is_not_adopted_but_waited_for() -> None:
    plane = Plane()
    plane.put(admitted())
    plane.kubernetes.create(a_foreign_job(**our_labels()))
    dying = plane.kubernetes.objects["Job", NAMESPACE, "w-w1-g0"]
    dying["metadata"]["deletionTimestamp"] = "now"

    plane.act()(CLUSTER, ["w1"])

    assert plane.record().state is State.ADMITTED
    assert plane.kubernetes.started == []


def test_a_foreign_job_of_the_same_name_is_left_alone_and_the_workload_fails() -> None:
    plane = Plane()
    plane.put(admitted())
    plane.kubernetes.create(a_foreign_job(app="theirs"))

    plane.act()(CLUSTER, ["w1"])

    record, job = plane.record(), plane.job()
    assert record.state is State.RECLAIMING
    assert record.intent is not None
    assert (record.intent.kind, record.intent.reason) == (
        IntentKind.FAIL, "MISCONFIGURATION:PolicyDenied",
    )  # fmt: skip
    assert "w-w1-g0 that is not ours" in record.intent.message
    assert job is not None
    assert job["spec"]["suspend"] is True


class Refusing(FakeKubernetes):
    """An API server that answers every creation with one error."""

    error: Exception = ClusterError("out of order", 500)

    def create(self, document: dict[str, Any]) -> Any:
        raise self.error


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_a_refusal_that_will_not_change_fails_the_workload_and_names_the_reason(
    status: int,
) -> None:
    plane, kubernetes = Plane(), Refusing()
    kubernetes.error = ClusterError("admission webhook dislikes hats", status)
    plane.put(admitted())

    plane.act(kubernetes)(CLUSTER, ["w1"])

    intent = plane.record().intent
    assert intent is not None
    assert intent.kind is IntentKind.FAIL
    assert intent.message == f"{CLUSTER} refuses it: admission webhook dislikes hats"


@pytest.mark.parametrize(
    "error",
    [
        ClusterError("does not answer"),
        ClusterError("slow down", 429),
        ClusterError("oh dear", 500),
    ],
    ids=str,
)
def test_trouble_of_our_own_returns_the_message_and_leaves_the_record(error: Exception) -> None:
    plane, kubernetes = Plane(), Refusing()
    kubernetes.error = error
    before = plane.put(admitted())

    with pytest.raises(ClusterError, match=str(error)):
        plane.act(kubernetes)(CLUSTER, ["w1"])

    assert plane.record() == before


@pytest.mark.parametrize(
    "state", [State.PENDING, State.FINISHED, State.CANCELLED, State.REJECTED], ids=str
)
def test_a_stale_command_does_nothing(state: State) -> None:
    plane = Plane()
    before = plane.put(a_workload(state=state, cluster=CLUSTER))

    plane.act()(CLUSTER, ["w1", "unknown"])

    assert plane.record() == before
    assert plane.kubernetes.objects == {}


def test_a_command_for_a_workload_on_another_cluster_does_nothing() -> None:
    plane = Plane()
    plane.put(admitted(cluster="batch-2"))

    plane.act()(CLUSTER, ["w1"])

    assert plane.kubernetes.objects == {}


def test_a_claim_that_lost_its_race_does_not_start_the_job() -> None:
    plane = Plane()
    plane.put(admitted())

    class Overtaken(FakeKubernetes):
        """A user cancels while the Job is being created."""

        def create(self, document: dict[str, Any]) -> Any:
            plane.workloads.apply([lifecycle.reclaim(plane.record(), CANCEL)])
            return super().create(document)

    kubernetes = Overtaken()
    plane.act(kubernetes)(CLUSTER, ["w1"])

    assert plane.record().state is State.RECLAIMING
    assert kubernetes.started == []


def test_of_two_dispatchers_only_the_claimed_job_is_started() -> None:
    plane = Plane()
    plane.put(admitted())

    class Overtaken(FakeKubernetes):
        """Another dispatcher claims a Job that was deleted since, before we can claim ours."""

        def create(self, document: dict[str, Any]) -> Any:
            made = super().create(document)
            plane.workloads.apply([lifecycle.claim(plane.record(), "uid-of-another", 1)])
            return made

    kubernetes = Overtaken()
    plane.act(kubernetes)(CLUSTER, ["w1"])

    assert plane.record().uid == "uid-of-another"
    assert kubernetes.started == []


def test_a_job_that_is_cancelled_between_claim_and_start_stays_suspended() -> None:
    plane = Plane()
    job = plane.kubernetes.create(a_foreign_job(**our_labels()))
    assert isinstance(job, dict)
    plane.put(admitted(state=State.DISPATCHED, uid=job["metadata"]["uid"]))

    class Overtaken(FakeKubernetes):
        """A user cancels while the Job is being looked up."""

        def get(self, kind: str, namespace: str, name: str) -> Any:
            plane.workloads.apply([lifecycle.reclaim(plane.record(), CANCEL)])
            return super().get(kind, namespace, name)

    kubernetes = Overtaken(objects=plane.kubernetes.objects)
    plane.act(kubernetes)(CLUSTER, ["w1"])

    assert plane.record().state is State.RECLAIMING
    assert kubernetes.started == []


def test_a_dispatched_job_that_was_never_started_is_started_now() -> None:
    plane = Plane()
    job = plane.kubernetes.create(a_foreign_job(**our_labels()))
    assert isinstance(job, dict)
    plane.put(admitted(state=State.DISPATCHED, uid=job["metadata"]["uid"]))

    plane.act()(CLUSTER, ["w1"])

    assert plane.kubernetes.started == ["w-w1-g0"]


def test_reclaiming_deletes_the_job_and_proves_that_it_is_gone() -> None:
    plane = Plane()
    plane.workloads.apply([lifecycle.reclaim(plane.dispatched(), CANCEL)])

    plane.act()(CLUSTER, ["w1"])

    assert plane.job() is None
    assert plane.record().gone


def test_the_job_that_took_the_name_meanwhile_is_not_deleted() -> None:
    plane = Plane()
    plane.workloads.apply([lifecycle.reclaim(plane.dispatched(), CANCEL)])

    class Replaced(FakeKubernetes):
        """The Job vanishes, and its name is taken, just before it is deleted."""

        def delete(self, kind: str, namespace: str, name: str, **options: Any) -> bool:
            other = a_foreign_job(**our_labels())
            other["metadata"]["uid"] = "uid-of-another"
            self.objects["Job", namespace, name] = other
            return super().delete(kind, namespace, name, **options)

    replaced = Replaced(objects=plane.kubernetes.objects)
    plane.act(replaced)(CLUSTER, ["w1"])

    job = replaced.get("Job", NAMESPACE, "w-w1-g0")
    assert job is not None
    assert job["metadata"]["uid"] == "uid-of-another"


def test_a_workload_is_not_gone_while_a_pod_of_it_still_runs() -> None:
    plane = Plane()
    plane.workloads.apply([lifecycle.reclaim(plane.dispatched(), CANCEL)])
    del plane.kubernetes.objects["Job", NAMESPACE, "w-w1-g0"]  # somebody orphaned the pod

    plane.act()(CLUSTER, ["w1"])
    assert not plane.record().gone

    del plane.kubernetes.objects["Pod", NAMESPACE, "w-w1-g0-pod"]
    plane.act()(CLUSTER, ["w1"])
    assert plane.record().gone


def test_a_workload_reclaimed_before_its_dispatch_is_gone_at_once() -> None:
    plane = Plane()
    plane.workloads.apply([lifecycle.reclaim(plane.put(admitted()), CANCEL)])

    plane.act()(CLUSTER, ["w1"])

    assert plane.record().gone
    assert plane.kubernetes.objects == {}


def test_a_job_that_ended_before_it_could_be_stopped_is_finished_not_cancelled() -> None:
    plane = Plane()
    plane.workloads.apply([lifecycle.reclaim(plane.dispatched(), CANCEL)])
    plane.kubernetes.finish(NAMESPACE, "w-w1-g0")

    plane.act()(CLUSTER, ["w1"])

    record = plane.record()
    assert (record.state, record.result.succeeded) == (State.FINISHED, True)
    assert record.reservation is not None, "only admit gives quota back"


def test_one_workload_that_cannot_be_made_does_not_stop_its_neighbour() -> None:
    plane = Plane()
    plane.put(admitted("w1"))
    plane.put(admitted("w2"))
    plane.kubernetes.create(a_foreign_job(app="theirs"))

    plane.act()(CLUSTER, ["w1", "w2"])

    assert plane.record("w1").state is State.RECLAIMING
    assert plane.record("w2").state is State.DISPATCHED
