"""Make one cluster match the records of some workloads: create, claim, un-suspend, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sluice.core import job_status
from sluice.core import workload as lifecycle
from sluice.core.model import ResourceFlavor, Toleration
from sluice.core.reasons import Reason
from sluice.core.rendering import Placement, Run, render
from sluice.core.replacement import avoiding
from sluice.core.submission import kubernetes_object
from sluice.core.workload import (
    Intent,
    IntentKind,
    PodSetAssignment,
    State,
    Workload,
)
from sluice.errors import ClusterError, ClusterForbidden
from sluice.ports import (
    AlreadyExists,
    Catalog,
    Clock,
    Cluster,
    Clusters,
    Document,
    Manifests,
    Observers,
    Offerings,
    Workloads,
)
from sluice.usecases.configuration import configured
from sluice.usecases.migrate import Migrate, make_room, moves, was_moved
from sluice.usecases.stopping import find, stop

T = TypeVar("T")
R = TypeVar("R")
PARALLEL = 8
PERMANENT = {400, 403, 404, 405, 413, 422}


@dataclass(frozen=True)
class Act:
    """Level-triggered: does what each record still asks for, so repeats are harmless."""

    workloads: Workloads
    manifests: Manifests
    catalog: Catalog
    clusters: Clusters
    observers: Observers
    clock: Clock
    migrate: Migrate
    offerings: Offerings
    checkpoints: str = ""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    def __call__(self, cluster_name: str, ids: Iterable[str]) -> None:
        """Raises ClusterError for a cluster that does not answer: the message will come again."""
        records = [w for w in self.workloads.get_many(ids) if w.cluster == cluster_name]
        cluster = self.clusters.cluster(cluster_name)
        moving = [w for w in records if moves(w)]
        moved = self.workloads.get_many(self.migrate(cluster, moving))
        wanted = [w for w in (*records, *moved) if w.state in (State.ADMITTED, State.DISPATCHED)]
        unwanted = [w for w in records if w.state is State.RECLAIMING and not (moves(w) or w.gone)]
        if wanted:
            self.dispatch(cluster_name, cluster, wanted)
        if wanted or moving:
            self.observers.wake(cluster_name)
        if unwanted:
            stopped = self.each(lambda w: stop(cluster, w, self.clock.now()), unwanted)
            self.workloads.apply([change for change in stopped if change])

    def dispatch(self, name: str, cluster: Cluster, wanted: Sequence[Workload]) -> None:
        """Create suspended, claim, only then un-suspend, with the claimed UID as precondition."""
        fresh = (w for w in wanted if w.state is State.ADMITTED)
        manifests = self.manifests.get_many(w.manifest_key for w in fresh)
        flavors = configured(self.catalog.snapshot()).queues.flavors
        terms = avoiding(self.offerings.banned(name), self.clock.now())

        def job_of(workload: Workload) -> Document | Intent | None:
            if workload.state is State.DISPATCHED:
                return find(cluster, workload)
            run = run_of(workload, flavors, terms, self.checkpoints)
            return create(cluster, workload, manifests[workload.manifest_key], run)

        jobs = self.each(job_of, wanted)
        refused = [
            lifecycle.reclaim(w, job)
            for w, job in zip(wanted, jobs, strict=True)
            if isinstance(job, Intent)
        ]
        made = [
            (w, job)
            for w, job in zip(wanted, jobs, strict=True)
            if job is not None and not isinstance(job, Intent)
        ]
        now = self.clock.now()
        claims = [
            lifecycle.claim(w, job["metadata"]["uid"], now)
            for w, job in made
            if w.state is State.ADMITTED
        ]
        done = self.workloads.apply([*claims, *refused])
        current = {
            claim.before.id: lifecycle.after(claim)
            for claim, won in zip(claims, done[: len(claims)], strict=True)
            if won
        }
        # Whoever won the other claims: the record, read again, says which Job may run.
        others = self.workloads.get_many(w.id for w, _ in made if w.id not in current)
        current |= {w.id: w for w in others}
        self.each(
            lambda pair: start(cluster, current[pair[0].id], pair[1]),
            [pair for pair in made if pair[0].id in current],
        )

    def each(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return list(self.pool.map(do, items))


def create(
    cluster: Cluster,
    workload: Workload,
    manifest: Document,
    run: Run,
) -> Document | Intent | None:
    """The suspended Job of this generation, made or adopted; an Intent if it can never be made."""
    try:
        *volumes, job = render(kubernetes_object(manifest), run)
        for volume in volumes:
            cluster.create(volume)
        answer = cluster.create(job)
    except ClusterForbidden:
        raise  # our own permissions are wrong, not the workload: it waits until they are right
    except ClusterError as error:
        if error.status in PERMANENT:
            return Intent(
                IntentKind.FAIL, Reason.POLICY_DENIED, f"{workload.cluster} refuses it: {error}"
            )
        raise
    if not isinstance(answer, AlreadyExists):
        return answer
    existing = answer.existing
    if job_status.owner(existing) != (workload.id, workload.generation):
        message = f"{workload.cluster} has a Job {existing['metadata']['name']} that is not ours"
        return Intent(IntentKind.FAIL, Reason.POLICY_DENIED, message)
    return None if existing["metadata"].get("deletionTimestamp") else existing


def run_of(
    workload: Workload,
    flavors: Mapping[str, ResourceFlavor],
    terms: Sequence[Mapping[str, Any]] = (),
    checkpoints: str = "",
) -> Run:
    """One generation as it is to be rendered: counts, node labels and tolerations by pod set."""
    reservation = workload.reservation
    if reservation is None:
        raise ValueError(f"workload {workload.id} holds no quota, so it cannot run")
    return Run(
        id=workload.id,
        name=workload.name,
        namespace=workload.namespace,
        queue=workload.queue,
        generation=workload.generation,
        placements={s.name: placement(s, flavors) for s in reservation.pod_sets},
        options=workload.options,  # type: ignore[arg-type]  # stored as it was vetted
        restore_from=workload.restore_from or None,
        node_selector_terms=terms,
        checkpoints=checkpoints,
    )


def placement(assigned: PodSetAssignment, flavors: Mapping[str, ResourceFlavor]) -> Placement:
    labels: dict[str, str] = {}
    tolerations: list[Mapping[str, str]] = []
    for name in sorted(set(assigned.flavors.values())):
        flavor = flavors[name]
        labels |= flavor.node_labels
        tolerations += [
            {"key": t.key, "operator": "Equal", "value": t.value, "effect": t.effect.value}
            for t in flavor.node_taints
        ]
        tolerations += [toleration(t) for t in flavor.tolerations]
    return Placement(assigned.count, labels, tolerations)


def toleration(given: Toleration) -> Mapping[str, str]:
    written = {"key": given.key, "operator": given.operator, "value": given.value}
    if given.effect is not None:
        written["effect"] = given.effect.value
    return {name: text for name, text in written.items() if text}


def start(cluster: Cluster, workload: Workload, job: Document) -> None:
    """Un-suspend the claimed Job; any other stays suspended until `observe` removes it."""
    metadata = job["metadata"]
    claimed = workload.state is State.DISPATCHED and workload.uid == metadata["uid"]
    if not claimed or not job_status.suspended(job):
        return
    if was_moved(workload):
        make_room(cluster, workload)
    patch = {"metadata": {"uid": workload.uid}, "spec": {"suspend": False}}
    cluster.patch(workload.kind, metadata["namespace"], metadata["name"], patch)
