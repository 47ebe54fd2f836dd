"""Prints what the core decides about many made-up trees; equal input must give equal text.

Run as a program by test_hash_seeds.py, so that sets have another order in each run.
"""

import random
from collections.abc import Iterator

from sluice.core.clusters.fallback import Market
from sluice.core.clusters.fleet import Site
from sluice.core.config.budget import Budget
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import Assignment as Assigned
from sluice.core.config.model import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Holding,
    LocalQueue,
    PodSetAssignment,
    PodSetInfo,
    Preemption,
    QueueingStrategy,
    ReclaimWithinCohort,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    WithinClusterQueue,
    WorkloadInfo,
)
from sluice.core.config.policy import AdmissionFairSharing, Aging, FairSharing, Policy
from sluice.core.lifecycle.record import (
    Intent,
    IntentKind,
    PodSet,
    Reservation,
    State,
)
from sluice.core.lifecycle.record import Workload as Record
from sluice.core.lifecycle.reservations import held_by
from sluice.core.passes.admission_cycle import decide
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan
from sluice.core.scheduling.scheduler import Plan, Scheduler

from tests.records import options_of

WORLDS = 30
GROUPS = {("cpu", "memory"): ("spot", "on-demand", "arm"), ("gpu",): ("a100", "l4", "t4")}
FLAVORS = tuple(flavor for flavors in GROUPS.values() for flavor in flavors)
RESOURCES = tuple(resource for resources in GROUPS for resource in resources)
CLUSTERS = ("ireland", "virginia", "oregon")
POLICIES = (
    Policy(),
    Policy(fair_sharing=FairSharing()),
    Policy(admission_fair_sharing=AdmissionFairSharing(60_000)),
    Policy(aging=Aging(1_000, reserve_after_ms=3_000)),
)


NOW = 1_000_000


def catalog(dice: random.Random) -> QueueCatalog:
    """One root with two cohorts below; every queue has all flavors, caps and two LocalQueues."""
    names = [f"{dice.choice('abcdefgh')}{n}" for n in range(5)]

    def quotas(resources: tuple[str, ...]) -> dict[str, ResourceQuota]:
        return {name: ResourceQuota(dice.randint(0, 6)) for name in resources}

    def groups() -> tuple[ResourceGroup, ...]:
        return tuple(
            ResourceGroup(resources, tuple(FlavorQuotas(f, quotas(resources)) for f in flavors))
            for resources, flavors in GROUPS.items()
        )

    queues = [
        ClusterQueue(
            name,
            groups(),
            cohort=dice.choice(["left", "right"]),
            queueing_strategy=dice.choice(list(QueueingStrategy)),
            preemption=Preemption(
                dice.choice(list(WithinClusterQueue)), dice.choice(list(ReclaimWithinCohort))
            ),
            usage_based_admission=dice.random() < 0.5,
            max_running_per_user=dice.choice([None, 3]),
        )
        for name in names
    ]
    return QueueCatalog(
        flavors=[ResourceFlavor(name) for name in FLAVORS],
        cohorts=[Cohort("left", "root"), Cohort("right", "root")],
        cluster_queues=queues,
        local_queues=[LocalQueue(f"{n}/{local}", n) for n in names for local in ("x", "y")],
        budgets=[
            Budget(f"of-{name}", 30_000_000, 3_600_000, local_queue=f"{name}/x") for name in names
        ],
    )


def pods(dice: random.Random) -> list[tuple[str, int, dict[str, int]]]:
    """Pod sets as (name, count, requests)."""
    return [
        (name, dice.randint(1, 2), {r: dice.randint(0, 2) for r in RESOURCES})
        for name in ("leader", "workers")[: dice.randint(1, 2)]
    ]


def provided(dice: random.Random) -> dict[str, str]:
    """A flavor for each resource."""
    return {
        resource: flavor
        for resources, flavors in GROUPS.items()
        for flavor in [dice.choice(flavors)]
        for resource in resources
    }


def scheduled(dice: random.Random) -> Iterator[Plan | tuple[object, ...]]:
    """Three passes of a scheduler, and why the rest waits."""
    queues = catalog(dice)
    scheduler = Scheduler(queues, "root", dice.choice(POLICIES))
    names = list(queues.cluster_queues)
    prices = dict.fromkeys(FLAVORS, 10_000_000)
    for number in range(40):
        name, wanted = dice.choice(names), pods(dice)
        workload = WorkloadInfo(
            f"{dice.choice('klmnop')}{number}",
            name,
            tuple(PodSetInfo(*each) for each in wanted),
            priority=dice.randint(0, 2),
            queued_at_ms=NOW - 1000 * dice.randint(0, 5),
            local_queue=f"{name}/{dice.choice('xy')}",
            user=dice.choice(["ann", "ben"]),
            cost_microusd_per_hour=prices,
        )
        if number % 4:
            scheduler.enqueue(workload)
            continue
        flavors = provided(dice)
        assigned = tuple(PodSetAssignment(s, n, flavors) for s, n, _ in wanted)
        scheduler.hold(Holding(workload, Assigned(assigned), NOW - 1000 * (number % 3)))
    for step in range(3):
        plan = scheduler.run_pass(NOW + 1000 * step, explain=True)
        yield plan
        for each in plan.preemptions:
            scheduler.release(each.victim, NOW + 1000 * step)
    yield tuple(scheduler.why(each) for each in scheduler.waiting_ids())


def recorded(dice: random.Random, queues: QueueCatalog) -> CycleInput:
    """Records below the root: clusters, victims that stop for others, budgets."""
    names = list(queues.cluster_queues)
    sites = [
        Site(c, frozenset(dice.sample(FLAVORS, 4)), rates={f: {"cpu": (1, 1)} for f in FLAVORS})
        for c in dice.sample(CLUSTERS, 3)
    ]
    records, holders = [], []
    for number in range(30):
        name, wanted = dice.choice(names), pods(dice)
        wishes = [{"flavor": f, "clusters": dice.sample(CLUSTERS, 3)} for f in FLAVORS]
        record = Record(
            id=f"{dice.choice('klmnop')}{number}",
            name=f"n{number}",
            namespace=name,
            queue=f"{name}/{dice.choice('xy')}",
            state=State.PENDING,
            cq=name,
            root="root",
            priority=dice.randint(0, 2),
            created_at=NOW - 1000 * dice.randint(0, 5),
            pod_sets=tuple(PodSet(*each) for each in wanted),
            options=options_of({"placement": wishes} if dice.random() < 0.5 else {}),
        )
        records.append(record)
    for record in records[::3]:
        flavors, cluster = provided(dice), dice.choice(CLUSTERS)
        assigned = tuple(PodSetAssignment(s.name, s.count, flavors) for s in record.pod_sets)
        stops = dice.random() < 0.5
        by = dice.choice(records).id
        holders.append(
            Record(
                **{n: getattr(record, n) for n in Record.__slots__}
                | {
                    "state": State.RECLAIMING if stops else State.DISPATCHED,
                    "reservation": Reservation(0, record.cq, cluster, NOW - 9000, assigned),
                    "intent": Intent(IntentKind.PREEMPT, "r", by=by) if stops else None,
                    "gone": stops,
                }
            )
        )
    held = {holder.id for holder in holders}
    usage: dict[str, dict[str, int]] = {}
    for holder in holders:
        cells = usage.setdefault(holder.cq, {})
        for key, amount in held_by(holder).items():
            cells[key] = cells.get(key, 0) + amount
    return CycleInput(
        root="root",
        usage=usage,
        releasing=[holder for holder in holders if holder.gone],
        waiting=[record for record in records if record.id not in held],
        holders=[holder for holder in holders if not holder.gone],
        market=Market({site.name: sorted(site.flavors) for site in sites}),
        sites=sites,
        now=NOW,
    )


def cycled(dice: random.Random) -> CyclePlan:
    """A cycle over such records."""
    queues = catalog(dice)
    return decide(queues, recorded(dice, queues), dice.choice(POLICIES), of_all=True)


def main() -> None:
    for seed in range(WORLDS):
        for plan in scheduled(random.Random(seed)):
            print(plan)
        cycle = cycled(random.Random(seed))
        for step in cycle.steps:
            print(step.line, step.change.set.get("placed"), step.change.set.get("reservation"))
        print(dict(cycle.refusals))


if __name__ == "__main__":
    main()
