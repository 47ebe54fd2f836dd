"""How large each NodePool may be, and which flavors nobody can get now: one cluster's plan.

Only knobs that never drift a node are turned (limits, weight, disruption budgets), only on pools
that carry our label, and never where somebody else has set them. The ledger stays the authority on
quota: a limit is a backstop, so it is generous about the shapes of machines.
Source: facts, spot-and-karpenter §3; docs/decisions/0017-provision.md.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.clusters.machine_sizes import MachineSize, largest
from sluice.core.clusters.quarantine import CAPACITY_TYPE, Ban, in_force
from sluice.core.config.model import ClusterQueue, Cohort, ResourceFlavor
from sluice.core.lifecycle.job_status import running_pod
from sluice.core.lifecycle.record import Workload, is_migrating
from sluice.core.migrations.interruption import epoch_ms
from sluice.core.values.quantity import format_quantity, parse_quantity
from sluice.core.values.reasons import Reason

Document = Mapping[str, Any]

MANAGED: Final = "sluice.dev/managed"
MANAGER: Final = "sluice"
"""The field manager under which pools are changed."""
NODEPOOL: Final = "karpenter.sh/nodepool"
SPOT, ON_DEMAND, RESERVED = "spot", "on-demand", "reserved"

_GIB: Final = 2**30
# Machines hold at most 8 GiB of memory a vCPU, and GPUs come with at most 24 vCPUs each.
_BYTES_PER_CORE: Final = 8 * _GIB
_MILLICORES_PER_DEVICE: Final = 24_000
_LEAST_PER_POD: Final = 100
# A pod that needs a little more than half a machine leaves the rest of it unused.
_OVERSIZE: Final = 2
_SMALL_MACHINE: Final = 8_000
_SMALLEST_MACHINE: Final = 2_000
_STEP: Final = 32_000
_STANDBY: Final = 256_000
_UNREADY_MS: Final = 120_000
_MOST_MACHINES: Final = 100
"""So many machines with free room are remembered of a closed pool, the emptiest."""
WAITING_PODS: Final = 1_000
"""How many pods of a cluster may wait for nodes before nothing more is admitted there."""
_WEIGHTS: Final = {RESERVED: 30, SPOT: 20, ON_DEMAND: 10}
_FREE_LABELS: Final = ("karpenter.k8s.aws/", "topology.kubernetes.io/", "topology.k8s.aws/",
                       "node.kubernetes.io/", "kubernetes.io/")  # fmt: skip
MASS_RECOVERY: Final = 5
"""So many workloads on the way to another machine are no time to take machines away."""
FROZEN: Final = ({"nodes": "0"},)


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool as it was seen; cpu in millicores, times in epoch ms.

    `labels` maps a label of its nodes to the values that they can have. `limit`, `weight` and
    `frozen` are what the object says now; `theirs` names the knobs that somebody else has set.
    """

    name: str
    labels: Mapping[str, frozenset[str]]
    running: int = 0
    launching: int = 0
    launched_at: int = 0
    failure: str = ""
    not_ready: str = ""
    limit: int | None = None
    weight: int | None = None
    frozen: bool = False
    ours: frozenset[str] = frozenset()
    theirs: frozenset[str] = frozenset()
    largest: tuple[MachineSize, ...] = ()
    """The largest types that it may buy; none: nobody knows."""

    @property
    def capacity_types(self) -> frozenset[str]:
        return self.labels.get(CAPACITY_TYPE, frozenset())

    def serves(self, labels: Mapping[str, str]) -> bool:
        """Whether its nodes can have all of these labels."""
        return all(
            value in self.labels[key] if key in self.labels else key.startswith(_FREE_LABELS)
            for key, value in labels.items()
        )


@dataclass(frozen=True, slots=True)
class Closure:
    """Why nothing is bought of a flavor until `until`; `room` millicores are there already.

    `machines` are the free millicores of each machine that is there, the largest first; None: not
    known, so that `room` counts as one machine.
    """

    reason: Reason
    message: str
    until: int
    room: int = 0
    machines: tuple[int, ...] | None = None

    def rests(self) -> tuple[int, ...]:
        """The free millicores of each machine that is there."""
        return (self.room,) if self.machines is None else self.machines


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What one NodePool shall be, and what it was planned from.

    `limit` (millicores) and `weight` None: not ours to set. `released`: everything of ours is
    taken back.
    """

    pool: str
    flavors: tuple[str, ...]
    capacity_types: tuple[str, ...]
    running: int = 0
    demand: int = 0
    limit: int | None = None
    weight: int | None = None
    frozen: bool = False
    closed: Closure | None = None
    released: bool = False
    theirs: tuple[str, ...] = ()
    largest: tuple[MachineSize, ...] = ()

    def differs(self, pool: Pool) -> bool:
        """Whether the object has to be written."""
        if self.released:
            return bool(pool.ours)
        wanted = {"limits": self.limit, "weight": self.weight, "budgets": self.frozen or None}
        seen = {"limits": pool.limit, "weight": pool.weight, "budgets": pool.frozen or None}
        return any(
            wanted[knob] != (seen[knob] if knob in pool.ours else None)
            for knob in wanted
            if knob not in pool.theirs
        )

    def document(self) -> dict[str, Any]:
        """What server-side apply is given: just our fields; those left out are given up."""
        spec: dict[str, Any] = {}
        if not self.released:
            if self.limit is not None:
                spec["limits"] = {"cpu": format_quantity("cpu", self.limit)}
            if self.weight is not None:
                spec["weight"] = self.weight
            if self.frozen:
                spec["disruption"] = {"budgets": [dict(each) for each in FROZEN]}
        named = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}
        # An empty spec would be owned as such: without it nothing of ours is left.
        return {**named, "metadata": {"name": self.pool}} | ({"spec": spec} if spec else {})


@dataclass(frozen=True, slots=True)
class CapacityView:
    """All that one cluster's plan is made from.

    `workloads` are those that hold quota on this cluster, `waiting` those that could be admitted
    next. `waiting_pods` counts pods without a node.
    """

    pools: Sequence[Pool]
    flavors: Mapping[str, ResourceFlavor]
    queues: Collection[ClusterQueue]
    cohorts: Collection[Cohort]
    workloads: Sequence[Workload]
    waiting: Sequence[Workload]
    bans: Sequence[Ban]
    waiting_pods: int
    now: int
    most_waiting_pods: int = WAITING_PODS
    managed: bool = True
    free: Mapping[str, Sequence[int]] | None = None
    """NodePool → free millicores of each of its machines; None: not known."""
    offered: Collection[str] = field(default_factory=tuple)
    """Flavors that the cluster offers; empty: all."""


def plan(view: CapacityView) -> list[PoolPlan]:
    """One plan a pool, by name; the same sight, the same plans."""
    used, wanted = _reserved(view), _admissible(view)
    offered = sorted(name for name in view.flavors if not view.offered or name in view.offered)
    crowded = _crowded(view)
    recovering = sum(is_migrating(w) for w in view.workloads) >= MASS_RECOVERY
    bans = {ban.offering.pool: ban for ban in in_force(view.bans, view.now) if ban.offering.pool}
    made = []
    for pool in sorted(view.pools, key=lambda each: each.name):
        flavors = [name for name in offered if pool.serves(view.flavors[name].node_labels)]
        demand = sum(used.get(name, 0) for name in flavors)
        closed = _closed(pool, bans.get(pool.name), demand, view)
        managed = view.managed and any(name in wanted for name in flavors)
        limit = None
        if managed and "limits" not in pool.theirs:
            sold_out = pool.name in bans
            room = 0 if sold_out else demand + sum(wanted.get(name, 0) for name in flavors)
            limit = limit_for(room, pool.running)
        made.append(
            PoolPlan(
                pool=pool.name,
                flavors=tuple(flavors),
                capacity_types=tuple(sorted(pool.capacity_types)),
                running=pool.running,
                demand=demand,
                limit=limit,
                weight=_weight(pool, flavors, view) if managed else None,
                frozen=managed
                and "budgets" not in pool.theirs
                and (recovering or pool.name in bans),
                closed=closed or crowded,
                released=not view.managed,
                theirs=tuple(sorted(pool.theirs)),
                largest=pool.largest,
            )
        )
    return made


def limit_for(demand: int, running: int) -> int:
    """The cpu limit of a pool in millicores: room for the demand, never less than what runs."""
    if demand <= 0:
        return running
    wanted = _OVERSIZE * demand + _SMALL_MACHINE
    return max(running, -(-wanted // _STEP) * _STEP)


def size(requests: Mapping[str, int]) -> int:
    """Millicores of the largest machine share that such a pod can need, whatever it asks for."""
    devices = sum(n for name, n in requests.items() if "/" in name)
    return max(
        requests.get("cpu", 0),
        -(-requests.get("memory", 0) * 1000 // _BYTES_PER_CORE),
        devices * _MILLICORES_PER_DEVICE,
        _LEAST_PER_POD,
    )


def pack(workload: Workload, rests: Sequence[int]) -> tuple[int, ...] | None:
    """What is left of machines with these free millicores after all pods; None: they do not fit.

    The largest pod first, each to the smallest rest that holds it. A sum of small rests is no room.
    """
    left = sorted(rests)
    sizes = sorted(((size(s.requests), s.count) for s in workload.pod_sets), reverse=True)
    for amount, count in sizes:
        for _ in range(count):
            place = bisect_left(left, amount)
            if place == len(left):
                return None
            insort(left, left.pop(place) - amount)
    return tuple(reversed(left))


def total_size(workload: Workload) -> int:
    return sum(size(s.requests) * s.count for s in workload.pod_sets)


def closed_flavors(plans: Sequence[PoolPlan], now: int) -> dict[str, Closure]:
    """Flavor → why it cannot be had on a cluster: every pool that serves it is closed."""
    found = {}
    for name in sorted({name for each in plans for name in each.flavors}):
        serving = [each for each in plans if name in each.flavors]
        closed = [each.closed for each in serving if each.closed and each.closed.until > now]
        if len(closed) == len(serving):
            first = min(closed, key=lambda each: each.until)
            room = sum(each.room for each in closed)
            rests = sorted((rest for each in closed for rest in each.rests()), reverse=True)
            found[name] = Closure(first.reason, first.message, first.until, room, tuple(rests))
    return found


def read_pool(
    document: Document, claims: Iterable[Document], machines: Iterable[MachineSize] = ()
) -> Pool:
    """A NodePool document with the NodeClaims that belong to it, and the types that EC2 has."""
    name, spec = document["metadata"]["name"], document["spec"]
    status, limits = document.get("status") or {}, spec.get("limits") or {}
    own = [c for c in claims if (c["metadata"].get("labels") or {}).get(NODEPOOL) == name]
    bought = [c for c in own if _condition(c, "Launched") == "True"]
    ours, theirs = _owners(document)
    budgets = (spec.get("disruption") or {}).get("budgets")
    return Pool(
        name=name,
        labels=_labels(document),
        running=_cpu(status.get("resources")),
        launching=sum(_condition(c, "Initialized") != "True" for c in bought),
        launched_at=max((_since(c, "Launched") for c in bought), default=0),
        failure=next((text for c in own if (text := _failure(c))), ""),
        not_ready=_not_ready(status),
        limit=parse_quantity("cpu", str(limits["cpu"])) if "cpu" in limits else None,
        weight=spec.get("weight"),
        frozen=budgets == [dict(each) for each in FROZEN],
        ours=ours,
        theirs=theirs,
        largest=largest(document, machines),
    )


def unscheduled(pods: Iterable[Document]) -> list[Document]:
    """Pods for which no node was found yet."""
    return [
        pod
        for pod in pods
        if running_pod(pod)
        and not pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
    ]


def _reserved(view: CapacityView) -> dict[str, int]:
    """Flavor → millicores held on this cluster; a move counts twice, since both places exist."""
    total: dict[str, int] = {}
    for workload in view.workloads:
        if workload.reservation is None:
            continue
        requests = {s.name: s.requests for s in workload.pod_sets}
        times = 2 if is_migrating(workload) else 1
        for assigned in workload.reservation.pod_sets:
            amount = size(requests[assigned.name]) * assigned.count * times
            for flavor in set(assigned.flavors.values()):
                total[flavor] = total.get(flavor, 0) + amount
    return total


def _admissible(view: CapacityView) -> dict[str, int]:
    """Flavor with quota → millicores that may be admitted to it before the next plan."""
    quota: dict[str, dict[str, int]] = {}
    groups = [group for queue in view.queues for group in queue.resource_groups]
    groups += [group for cohort in view.cohorts for group in cohort.resource_groups]
    for flavor in (flavor for group in groups for flavor in group.flavors):
        of_flavor = quota.setdefault(flavor.name, {})
        for resource, each in flavor.resources.items():
            of_flavor[resource] = of_flavor.get(resource, 0) + each.nominal
    held = _reserved(view)
    queues = {queue.name: queue for queue in view.queues}
    asked: dict[str, int] = {}
    for workload in view.waiting:
        queue = queues.get(workload.cq)
        for group in queue.resource_groups if queue else ():
            for flavor in group.flavors:
                asked[flavor.name] = asked.get(flavor.name, 0) + total_size(workload)
    return {
        name: min(max(0, size(of_flavor) - held.get(name, 0)), max(asked.get(name, 0), _STANDBY))
        for name, of_flavor in quota.items()
        if any(of_flavor.values())
    }


def _closed(pool: Pool, ban: Ban | None, demand: int, view: CapacityView) -> Closure | None:
    now, room = view.now, max(0, pool.running - demand)
    machines = None
    if view.free is not None:
        machines = tuple(sorted(view.free.get(pool.name, ()), reverse=True)[:_MOST_MACHINES])
    if ban is not None:
        said = f": {ban.message}" if ban.message else ""
        text = f"NodePool {pool.name}: {ban.cause.reason.sentence.rstrip('.')}{said}"
        return Closure(ban.cause.reason, text, ban.until, room, machines)
    if pool.not_ready:
        text = f"NodePool {pool.name} is not ready: {pool.not_ready}"
        return Closure(Reason.NODE_CLASS_NOT_READY, text, now + _UNREADY_MS, room, machines)
    limit = pool.limit if "limits" in pool.theirs else None
    if limit is not None and limit - pool.running < _SMALLEST_MACHINE:
        shown = format_quantity("cpu", limit)
        text = f"NodePool {pool.name} has reached the limit of {shown} cpu that was set for it"
        return Closure(Reason.NODE_POOL_LIMIT, text, now + _UNREADY_MS, room, machines)
    return None


def _crowded(view: CapacityView) -> Closure | None:
    if view.waiting_pods <= view.most_waiting_pods:
        return None
    text = (
        f"{view.waiting_pods} pods already wait for nodes, at most {view.most_waiting_pods} may;"
        " they come first"
    )
    return Closure(Reason.WAITING_FOR_NODE, text, view.now + _UNREADY_MS)


def _weight(pool: Pool, flavors: Collection[str], view: CapacityView) -> int | None:
    """Cheaper capacity first, where a flavor leaves the choice between pools."""
    if "weight" in pool.theirs or len(pool.capacity_types) != 1:
        return None
    rivals = [
        other
        for other in view.pools
        if other.name != pool.name
        and any(other.serves(view.flavors[name].node_labels) for name in flavors)
    ]
    if all(other.capacity_types == pool.capacity_types for other in rivals):
        return None
    (kind,) = pool.capacity_types
    return _WEIGHTS.get(kind)


def _labels(document: Document) -> dict[str, frozenset[str]]:
    template = document["spec"]["template"]
    fixed = (template.get("metadata") or {}).get("labels") or {}
    found = {key: frozenset({str(value)}) for key, value in fixed.items()}
    for requirement in template["spec"].get("requirements") or ():
        if requirement["operator"] == "In":
            values = frozenset(requirement.get("values") or ())
            found[requirement["key"]] = found.get(requirement["key"], values) & values
    return found | {NODEPOOL: frozenset({document["metadata"]["name"]})}


def _owners(document: Document) -> tuple[frozenset[str], frozenset[str]]:
    """Which of our knobs we own, and which somebody else does."""
    ours: set[str] = set()
    theirs: set[str] = set()
    for entry in document["metadata"].get("managedFields") or ():
        if entry.get("subresource"):
            continue
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        knobs = {
            "limits": "f:cpu" in (spec.get("f:limits") or {}),
            "weight": "f:weight" in spec,
            "budgets": "f:budgets" in (spec.get("f:disruption") or {}),
        }
        mine = entry.get("manager") == MANAGER and entry.get("operation") == "Apply"
        (ours if mine else theirs).update(knob for knob, owned in knobs.items() if owned)
    return frozenset(ours), frozenset(theirs - ours)


def _condition(document: Document, kind: str) -> str:
    for condition in (document.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            return str(condition["status"])
    return ""


def _since(document: Document, kind: str) -> int:
    for condition in (document.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            return epoch_ms(condition["lastTransitionTime"])
    return 0


def _failure(claim: Document) -> str:
    """What a NodeClaim that was never launched says about it; empty while it is only new."""
    for condition in (claim.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Launched" and condition["status"] != "True":
            # Until the first attempt Karpenter leaves its own "object is awaiting reconciliation".
            said = str(condition.get("message") or "")
            return "" if "awaiting reconciliation" in said else said
    return ""


def _not_ready(status: Document) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no reason given")
    return ""


def _cpu(amounts: Mapping[str, Any] | None) -> int:
    return parse_quantity("cpu", str((amounts or {}).get("cpu", "0")))
