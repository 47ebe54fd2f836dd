"""Make one cluster match the records of some workloads: create, claim, un-suspend, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sluice.core.accounting.recovery import was_migrated
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.clusters.job_assessment import LATE_DISPATCH_MS
from sluice.core.clusters.quarantine import avoiding
from sluice.core.config.model import ResourceFlavor
from sluice.core.intake.rendering import Generation, placement, render
from sluice.core.intake.submission import kubernetes_object
from sluice.core.jobs.kind import nested
from sluice.core.jobs.table import kind_of
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import (
    Change,
    Intent,
    IntentKind,
    State,
    Workload,
    after,
    is_migrating,
)
from sluice.core.migrations.restoring import waits_at_gate
from sluice.core.values.reasons import Reason
from sluice.errors import (
    CheckpointServiceError,
    CheckpointServiceRefused,
    ClusterError,
    ClusterForbidden,
    ManifestMissing,
    NotConfigured,
    SluiceError,
)
from sluice.ports import (
    AlreadyExists,
    Catalog,
    CheckpointReconciler,
    Clock,
    Cluster,
    Clusters,
    Document,
    Manifests,
    Observers,
    Offerings,
    Pools,
    Workloads,
)
from sluice.usecases.configuration import configured, market_of
from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint
from sluice.usecases.migrations.evict_with_checkpoint import EvictWithCheckpoint
from sluice.usecases.migrations.migrate import Migrate
from sluice.usecases.migrations.on_demand_fallback import leaving_spot
from sluice.usecases.migrations.placeholders import remove_placeholders
from sluice.usecases.migrations.restore_gang_members import RestoreGangMembers, restores_set
from sluice.usecases.migrations.stop_run import find
from sluice.usecases.running.start_gangs import may_be_waiting, start_gang
from sluice.usecases.running.start_in_place import prepare, start_in_place, tell_cancelled

T = TypeVar("T")
R = TypeVar("R")
PARALLEL = 8
REFUSALS = (ClusterForbidden, CheckpointServiceRefused, NotConfigured)
PERMANENT = {400, 403, 404, 405, 413, 422}
NOT_FOUND, NO_SUCH_KIND = 404, "page not found"  # other 404s name a missing namespace


@dataclass(frozen=True, kw_only=True)
class Act:
    """Level-triggered: does what each record still asks for, so repeats are harmless."""

    workloads: Workloads
    manifests: Manifests
    catalog: Catalog
    clusters: Clusters
    observers: Observers
    clock: Clock
    migrate: Migrate
    weigh: AssessCheckpoint
    offerings: Offerings
    pools: Pools
    checkpoints: str = ""
    reconcilers: Mapping[CheckpointMode, CheckpointReconciler] = field(default_factory=dict)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    def __call__(self, cluster_name: str, ids: Iterable[str]) -> None:
        """Does for each workload what can be done, then raises the first trouble that may pass.

        The message comes again. A right that we lack is told in the record of its workload.
        """
        named = self.workloads.get_many(ids)
        records = [w for w in named if w.cluster == cluster_name]
        cluster = self.clusters.cluster(cluster_name)
        self.each(lambda w: tell_cancelled(cluster, w, self.clock.now()), at_door(named))
        troubles = self.carry_word(cluster_name, cluster, named)
        moving = [w for w in records if is_migrating(w)]
        leaving = leaving_spot(moving, self.catalog, self.pools, self.clock.now())
        moved = self.workloads.get_many(self.migrate(cluster, moving, leaving))
        wanted = [w for w in (*records, *moved) if self.waits_for_dispatch(w)]
        unwanted = [
            w for w in records if w.state is State.RECLAIMING and not (is_migrating(w) or w.gone)
        ]
        troubles += self.dispatch(cluster_name, cluster, wanted) if wanted else []
        if wanted or moving:
            self.observers.wake(cluster_name)
        if unwanted:
            end = EvictWithCheckpoint(
                migrate=self.migrate, weigh=self.weigh, catalog=self.catalog, clock=self.clock
            )
            stopped = self.each(lambda w: end(cluster, w), unwanted)
            self.workloads.apply([change for change in stopped if isinstance(change, Change)])
            troubles += failures(unwanted, stopped)
        troubles += self.start_gangs(cluster, [w for w in records if may_be_waiting(w)])
        restored = [w for w in records if restores_set(w)]
        if restored:
            hand_out = RestoreGangMembers(self.workloads, self.migrate.migrations)
            handed = self.each(lambda w: hand_out(cluster, w), restored)
            troubles += failures(restored, handed)
        if troubles:
            self.workloads.apply(list(hindrances(troubles)))
        for _, trouble in troubles:
            if isinstance(trouble, ClusterError | ManifestMissing):
                raise trouble

    def carry_word(
        self, name: str, cluster: Cluster, workloads: Sequence[Workload]
    ) -> list[tuple[Workload, SluiceError]]:
        """Between pods and the services of drivers; also of workloads that have left this cluster.

        What a service does not do is told in the record, and needs no message to come again:
        `observe` sends one each second for as long as a pod waits.
        """
        served = [w for w in workloads if driver_of(w.options).mode in self.reconcilers]

        def carry(workload: Workload) -> None:
            self.reconcilers[driver_of(workload.options).mode](name, cluster, workload)
            self.migrate.catalog.remove_dropped(workload.id)

        return [*failures(served, self.each(carry, served))]

    def start_gangs(
        self, cluster: Cluster, gangs: Sequence[Workload]
    ) -> list[tuple[Workload, SluiceError]]:
        """The pods of all gangs are woken side by side."""
        begun = self.each(lambda w: start_gang(cluster, w), gangs)
        wakings = [
            (w, wake)
            for w, found in zip(gangs, begun, strict=True)
            if isinstance(found, list)
            for wake in found
        ]
        woken = self.each(lambda pair: pair[1](), wakings)
        return [*failures(gangs, begun), *failures([w for w, _ in wakings], woken)]

    def waits_for_dispatch(self, workload: Workload) -> bool:
        """A Job that was claimed just now is left to its claimer, who is about to un-suspend it."""
        if workload.state is State.DISPATCHED:
            return self.clock.now() - workload.dispatched_at > LATE_DISPATCH_MS
        return workload.state is State.ADMITTED and not workload.gated

    def dispatch(
        self, name: str, cluster: Cluster, wanted: Sequence[Workload]
    ) -> list[tuple[Workload, SluiceError]]:
        """Create suspended, claim, only then un-suspend, with the claimed UID as precondition."""
        fresh = (w for w in wanted if w.state is State.ADMITTED)
        manifests = self.manifests.get_many(w.manifest_key for w in fresh)
        snapshot, now = self.catalog.snapshot(), self.clock.now()
        flavors = configured(snapshot).queues.flavors
        kinds = market_of(snapshot, {name: self.pools.plans(name)}, now).kinds
        bans = self.offerings.banned(name)

        def job_of(workload: Workload) -> Document | Intent | None:
            if workload.state is State.DISPATCHED:
                return find(cluster, workload)
            terms = avoiding(bans, now, capacity_types(workload, kinds))
            cpu = self.migrate.catalog.cpu_of_source(workload)
            run = run_of(workload, flavors, terms, self.checkpoints, cpu)
            if (manifest := manifests.get(workload.manifest_key)) is None:
                raise ManifestMissing(f"there is no manifest {workload.manifest_key}")
            if workload.object is not None:
                return prepare(cluster, workload, manifest, run, now)
            return create(cluster, workload, manifest, run)

        jobs = self.each(job_of, wanted)
        refused = [
            lifecycle.reclaim(w, job)
            for w, job in zip(wanted, jobs, strict=True)
            if isinstance(job, Intent)
        ]
        made = [(w, job) for w, job in zip(wanted, jobs, strict=True) if isinstance(job, dict)]
        claims = [
            lifecycle.claim(w, job["metadata"]["uid"], self.clock.now())
            for w, job in made
            if w.state is State.ADMITTED
        ]
        done = self.workloads.apply([*claims, *refused])
        current = {
            claim.before.id: after(claim)
            for claim, won in zip(claims, done[: len(claims)], strict=True)
            if won
        }
        # Whoever won the other claims: the record, read again, says which Job may run.
        others = self.workloads.get_many(w.id for w, _ in made if w.id not in current)
        current |= {w.id: w for w in others}
        claimed = [(current[w.id], job) for w, job in made if w.id in current]
        started = self.each(lambda pair: start(cluster, *pair, now), claimed)
        return [*failures(wanted, jobs), *failures([w for w, _ in claimed], started)]

    def each(self, do: Callable[[T], R], items: Sequence[T]) -> list[R | SluiceError]:
        """One's trouble does not hold up the others: it is what comes back for it."""

        def attempt(item: T) -> R | SluiceError:
            try:
                return do(item)
            except SluiceError as error:
                return error

        return list(self.pool.map(attempt, items))


def at_door(workloads: Iterable[Workload]) -> list[Workload]:
    """Those that were cancelled before they held anything, whose object somebody else made."""
    return [w for w in workloads if w.object and w.state is State.CANCELLED and not w.runs]


def failures(
    workloads: Iterable[Workload], results: Iterable[object]
) -> Iterator[tuple[Workload, SluiceError]]:
    for workload, result in zip(workloads, results, strict=True):
        if isinstance(result, SluiceError):
            yield workload, result


def hindrances(troubles: Iterable[tuple[Workload, SluiceError]]) -> Iterator[Change]:
    """What people are to know of; other troubles pass by themselves."""
    for workload, error in troubles:
        told = workload.reason.message == str(error)
        if isinstance(error, REFUSALS) and not told:
            yield lifecycle.hinder(workload, Reason.MISSING_RIGHT, str(error))
        elif isinstance(error, CheckpointServiceError) and not told:
            yield lifecycle.hinder(workload, Reason.CLUSTER_UNREACHABLE, str(error))


def create(
    cluster: Cluster,
    workload: Workload,
    manifest: Document,
    run: Generation,
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
        if error.status == NOT_FOUND and NO_SUCH_KIND in str(error):
            message = f"{workload.cluster} knows no {workload.kind}s: their controller is missing"
            return Intent(IntentKind.FAIL, Reason.UNSUPPORTED_KIND, message)
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
    cpu: str = "",
) -> Generation:
    """One generation as it is to be rendered: counts, node labels and tolerations by pod set."""
    reservation = workload.reservation
    if reservation is None:
        raise ValueError(f"workload {workload.id} holds no quota, so it cannot run")
    return Generation(
        id=workload.id,
        name=workload.name,
        namespace=workload.namespace,
        queue=workload.queue,
        generation=workload.generation,
        placements={s.name: placement(s, flavors) for s in reservation.pod_sets},
        options=workload.options,
        restore_from=workload.restore_from or None,
        node_selector_terms=terms,
        checkpoints=checkpoints,
        cpu=cpu,
        in_place=workload.object is not None,
    )


def capacity_types(workload: Workload, kinds: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What the machines of its flavors can be; empty as soon as one of them is unknown."""
    flavors = workload.reservation.flavors if workload.reservation else ()
    of = [kinds.get(flavor, frozenset()) for flavor in flavors]
    return frozenset[str]().union(*of) if all(of) else frozenset()


def start(cluster: Cluster, workload: Workload, job: Document, now: int) -> None:
    """Un-suspend the claimed Job; any other stays suspended until `observe` removes it."""
    metadata = job["metadata"]
    claimed = workload.state is State.DISPATCHED and workload.uid == metadata["uid"]
    if not claimed or not job_status.suspended(job):
        return
    if was_migrated(workload) and not waits_at_gate(workload):
        remove_placeholders(cluster, workload)
    if workload.object is not None:
        start_in_place(cluster, workload, job, now)
        return
    # Who has set which of its fields is nearly half of a Job, worked out anew for each write to it
    # until the list is emptied in this way; nobody asks, since a Job is never applied.
    released = {"uid": workload.uid, "managedFields": [{}]}
    patch = {"metadata": released, **nested(kind_of(job).suspend, value=False)}
    cluster.patch(workload.kind, metadata["namespace"], metadata["name"], patch)
