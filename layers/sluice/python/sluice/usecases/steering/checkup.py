"""The api's part of `sluice doctor`: whether everything is there that work needs to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.clusters.capacity import MANAGED
from sluice.core.clusters.fleet import SILENT_MS
from sluice.core.values.reasons import Reason
from sluice.usecases.configuration import cluster_spec, configured
from sluice.usecases.fleet import counted_at
from sluice.usecases.steering.drain import CORDONED_BY
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.core.clusters.capacity import PoolPlan
    from sluice.core.lifecycle.faults import Fault
    from sluice.ports import CatalogSnapshot
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

OK, WARN, FAIL = "ok", "warn", "fail"
ADVICE: Mapping[str, str] = {
    Reason.MISSING_RIGHT: (
        "deploy again; for rights in a cluster apply the manifest that the output Apply of its "
        "stack sluice-cluster-access-… names"
    ),
    Reason.CLUSTER_UNREACHABLE: "see the cluster's endpoint, its network and its access entries",
}


@dataclass(frozen=True)
class Checkup:
    """Reads what is applied and what was observed; repairs nothing."""

    query: Query

    def __call__(self, caller: Authority) -> Json:
        snapshot = self.query.catalog.snapshot()
        faults = self._faults() if caller.admin else ()
        return {
            "items": [
                *_identity(caller),
                *_configuration(snapshot),
                *self._observed(snapshot),
                *faults,
            ]
        }

    def _faults(self) -> Iterator[Json]:
        now = self.query.clock.now()
        for fault in self.query.faults.noted():
            if fault.recent(now):
                where = f"function {fault.function}" + (f" ({fault.subject})" * bool(fault.subject))
                message = f"{(now - fault.at) // 1_000} s ago: {fault.message}"
                if (healed := self._healed_at(fault)) > fault.at:
                    worked = f"over since: it worked again {(now - healed) // 1_000} s ago"
                    yield _line(where, WARN, f"{message} ({worked})")
                else:
                    yield _line(where, FAIL, message, ADVICE.get(fault.code, ""))

    def _healed_at(self, fault: Fault) -> int:
        """When what failed was seen to work last (epoch ms); 0: nobody knows."""
        if fault.code == Reason.CLUSTER_UNREACHABLE or fault.function == "observe":
            return counted_at(self.query.nodes, fault.subject)
        return 0

    def _observed(self, snapshot: CatalogSnapshot) -> Iterator[Json]:
        now = self.query.clock.now()
        lost = {beat.instance: beat.lost for beat in self.query.nodes.heartbeats()}
        for cluster in sorted(snapshot.of("Cluster")):
            if told := lost.get(cluster):
                message = f"was declared lost by {told.by}: {told.reason}"
                advice = f"delete the Cluster {cluster}; the mark ends when the cluster answers"
                yield _line(f"cluster {cluster}", WARN, message, advice)
                continue
            if cluster_spec(snapshot, cluster).cordoned:
                notes = snapshot.of("Cluster")[cluster]["metadata"].get("annotations") or {}
                by = f" by {notes[CORDONED_BY]}" if CORDONED_BY in notes else ""
                advice = f"`sluice uncordon {cluster}` lets new work in again"
                yield _line(f"cluster {cluster}", WARN, f"is cordoned{by}", advice)
            yield from _pools(cluster, self.query.pools.plans(cluster), snapshot, now)
            seen = counted_at(self.query.nodes, cluster)
            waiting = self.query.workloads.active(cluster)
            if seen > now - SILENT_MS or not waiting:
                nodes = "no nodes, none needed" if not seen else "nodes are being observed"
                yield _line(f"cluster {cluster}", OK, nodes)
                continue
            yield _line(
                f"cluster {cluster}",
                WARN,
                f"{len(waiting)} workloads are placed here, and no node was seen for minutes",
                "see the logs of the function observe, and `kubectl get nodeclaims`",
            )


def _pools(
    cluster: str, plans: Sequence[PoolPlan], snapshot: CatalogSnapshot, now: int
) -> Iterator[Json]:
    """Whether NodePools serve what the cluster offers, and can buy machines."""
    where, spec = f"NodePools of {cluster}", cluster_spec(snapshot, cluster)
    if not spec.manages_pools:
        yield _line(where, OK, "left alone, as the Cluster object says")
        return
    served = {flavor for each in plans for flavor in each.flavors}
    offered = spec.flavors or tuple(snapshot.of("ResourceFlavor"))
    if missing := sorted(set(offered) - served):
        yield _line(
            where,
            WARN,
            f"no NodePool with the label {MANAGED}=true serves {', '.join(missing)}",
            "label the NodePools whose limits Sluice may set; it cannot tell what others can buy",
        )
    else:
        yield _line(where, OK, f"{len(plans)} are planned")
    for each in plans:
        if each.closed and each.closed.until > now:
            yield _line(
                f"NodePool {each.pool} of {cluster}",
                WARN,
                each.closed.message,
                "other flavors are used meanwhile; `sluice capacity` says until when",
            )


def _identity(caller: Authority) -> Iterator[Json]:
    if caller.bootstrap:
        yield _line(
            "tenant",
            WARN,
            f"{caller.who} is administrator because no Tenant exists",
            "apply a Tenant with spec.admin for your own role before others get access",
        )
    else:
        spaces = ", ".join(caller.namespaces) or "none"
        role = "administrator" if caller.admin else "tenant"
        told = f"{caller.who} is {role} {caller.tenant}, namespaces {spaces}"
        if caller.sends_as != caller.tenant:
            told += f"; its messages count as tenant {caller.sends_as}"
        yield _line("tenant", OK, told)


def _configuration(snapshot: CatalogSnapshot) -> Iterator[Json]:
    for kind, why in (
        ("Cluster", "nothing can be placed"),
        ("ResourceFlavor", "no queue can have quota"),
        ("ClusterQueue", "nothing can be admitted"),
        ("LocalQueue", "nothing can be submitted"),
    ):
        count = len(snapshot.of(kind))
        if count:
            yield _line(kind, OK, f"{count} applied")
        else:
            yield _line(kind, FAIL, f"none: {why}", "`sluice apply -f FILE`")
    queues = configured(snapshot).queues
    for problem in queues.problems:
        where = f"{problem.kind} {problem.name}"
        yield _line(where, WARN, f"{problem.field} {problem.message}", "apply a corrected object")


def _line(check: str, result: str, message: str, advice: str = "") -> Json:
    return {"check": check, "result": result, "message": message, "advice": advice}
