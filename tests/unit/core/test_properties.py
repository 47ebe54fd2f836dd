"""Properties of whole histories: random trees, random work, victims that stop and return."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairPreemptionStrategy,
    Preemption,
    QueueingStrategy,
    ReclaimWithinCohort,
    ResourceFlavor,
    WithinClusterQueue,
    WorkloadInfo,
)
from sluice.core.config.policy import Aging, FairSharing, Policy
from sluice.core.scheduling.quota import QuotaTree
from sluice.core.scheduling.scheduler import Plan, Scheduler

from tests.unit.core.builders import (
    RECLAIM_ANY,
    a_cohort,
    a_queue,
    a_workload,
    group,
    quota,
    running,
)

LIMIT = st.none() | st.integers(0, 8)
FINAL = FairPreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = FairPreemptionStrategy.LESS_THAN_INITIAL_SHARE
STRATEGIES = ((FINAL, INITIAL), (FINAL,), (INITIAL,))


@st.composite
def preemptions(draw: st.DrawFn, *, fair: bool) -> Preemption:
    reclaim = draw(st.sampled_from(ReclaimWithinCohort))
    may_borrow = not fair and reclaim is not ReclaimWithinCohort.NEVER and draw(st.booleans())
    return Preemption(
        draw(st.sampled_from(WithinClusterQueue)),
        reclaim,
        BorrowWithinCohort.LOWER_PRIORITY if may_borrow else BorrowWithinCohort.NEVER,
        draw(st.none() | st.integers(-1, 1)) if may_borrow else None,
    )


@dataclass
class World:
    """A catalog, its policy, and work that may be submitted to it."""

    catalog: QueueCatalog
    policy: Policy
    workloads: dict[str, WorkloadInfo] = field(default_factory=dict)

    def scheduler(self) -> Scheduler:
        return Scheduler(self.catalog, "c0", self.policy)


@st.composite
def worlds(draw: st.DrawFn, *, most: int = 12) -> World:
    """One root with up to three cohorts and four queues, one or two flavors, classical or fair."""
    fair = draw(st.booleans())
    flavors = draw(st.sampled_from([("one",), ("one", "two")]))
    sizes = st.integers(0, 8)

    def quotas(*, limits: bool) -> dict[str, object]:
        return {
            f: quota(draw(sizes), *((draw(LIMIT), draw(LIMIT)) if limits else ())) for f in flavors
        }

    cohorts: list[Cohort] = []
    for n in range(draw(st.integers(1, 3))):
        parent = None if n == 0 else f"c{draw(st.integers(0, n - 1))}"
        cohorts.append(Cohort(f"c{n}", parent, (group(**quotas(limits=n > 0)),)))  # type: ignore[arg-type]
    queues = [
        ClusterQueue(
            f"q{n}",
            (group(**quotas(limits=True)),),  # type: ignore[arg-type]
            cohort=draw(st.sampled_from(cohorts)).name,
            queueing_strategy=draw(st.sampled_from(QueueingStrategy)),
            preemption=draw(preemptions(fair=fair)),
            fair_weight_milli=draw(st.sampled_from([0, 500, 1000, 3000])),
        )
        for n in range(draw(st.integers(1, 4)))
    ]
    world = World(
        QueueCatalog(
            flavors=[ResourceFlavor(f) for f in flavors], cohorts=cohorts, cluster_queues=queues
        ),
        Policy(fair_sharing=FairSharing(draw(st.sampled_from(STRATEGIES))) if fair else None),
    )
    for n in range(draw(st.integers(1, most))):
        count = draw(st.integers(1, 4))
        world.workloads[f"w{n}"] = a_workload(
            f"w{n}",
            draw(st.sampled_from(queues)).name,
            draw(st.integers(1, 3)),
            count=count,
            min_count=draw(st.none() | st.integers(1, count)),
            queued=draw(st.integers(0, 5)),
            priority=draw(st.integers(-1, 2)),
        )
    return world


def exceeded(scheduler: Scheduler, world: World) -> list[str]:
    """Nodes whose present usage is above what they may ever use themselves."""
    tree = QuotaTree(world.catalog, "c0")
    found = []
    for at, name in enumerate(tree.names):
        for key, used in scheduler.usage(name).items():
            cell = tree.cell_index[key]
            limit = tree.borrowing_limit[cell][at]
            most = tree.subtree_quota[cell][at] + (limit or 0)
            if used > most and (at == 0 or limit is not None):
                found.append(f"{name} uses {used} of {most}")
    return found


@given(worlds(), st.data())
def test_no_history_exceeds_quota_at_any_node(world: World, data: st.DataObject) -> None:
    scheduler = world.scheduler()
    waiting = list(world.workloads)
    held: set[str] = set()
    stopping: list[str] = []
    chances = data.draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=12, max_size=12))
    for now, (one_stops, one_finishes) in enumerate(chances):
        for name in [waiting.pop() for _ in range(min(len(waiting), 3))]:
            scheduler.enqueue(world.workloads[name])
        plan = scheduler.run_pass(now)
        held |= {each.workload for each in plan.admissions}
        stopping += [each.victim for each in plan.preemptions]

        assert exceeded(scheduler, world) == []

        if stopping and one_stops:
            name = stopping.pop(0)
            scheduler.release(name)
            held.discard(name)
            scheduler.enqueue(world.workloads[name])
        running_on = sorted(held - set(stopping))
        if running_on and one_finishes:
            name = data.draw(st.sampled_from(running_on))
            scheduler.release(name)
            held.discard(name)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_submission_calls_does_not_change_the_plan(
    world: World, random: st.DataObject
) -> None:
    first, second = world.scheduler(), world.scheduler()
    for workload in world.workloads.values():
        first.enqueue(workload)
    shuffled = list(world.workloads.values())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for workload in shuffled:
        second.enqueue(workload)

    assert first.run_pass(0, explain=True) == second.run_pass(0, explain=True)


def run_to_rest(scheduler: Scheduler, world: World, passes: int) -> list[Plan]:
    """Passes in which victims stop at once and queue again, until nothing changes."""
    plans = []
    for _ in range(passes):
        plan = scheduler.run_pass(0)
        plans.append(plan)
        for step in plan.preemptions:
            scheduler.release(step.victim)
            scheduler.enqueue(world.workloads[step.victim])
        if not scheduler.has_candidates():
            break
    return plans


def any_strict_head_reserves(scheduler: Scheduler, world: World, apart_from: str) -> bool:
    """Whether a blocked strict queue may keep room free, pass after pass, that others could use."""
    queues = {world.workloads[each].cluster_queue for each in scheduler.waiting_ids()}
    return any(
        world.catalog.cluster_queues[name].queueing_strategy is QueueingStrategy.STRICT_FIFO
        for name in queues - {apart_from}
    )


@given(worlds())
def test_nothing_that_fits_and_is_first_is_left_waiting(world: World) -> None:
    scheduler = world.scheduler()
    for workload in world.workloads.values():
        scheduler.enqueue(workload)
    plans = run_to_rest(scheduler, world, passes=200)

    reached = plans[-1]
    assert not scheduler.has_candidates(), reached
    tree = QuotaTree(world.catalog, "c0")
    usage = {name: scheduler.usage(name) for name in tree.names}
    for at, name in enumerate(tree.names):
        for key, used in usage[name].items():
            tree.usage[tree.cell_index[key]][at] = used
    for name, config in world.catalog.cluster_queues.items():
        if any_strict_head_reserves(scheduler, world, apart_from=name):
            continue
        waiting = sorted(
            (
                world.workloads[each]
                for each in scheduler.waiting_ids()
                if world.workloads[each].cluster_queue == name
            ),
            key=lambda each: (-each.priority, each.queued_at_ms, each.id),
        )
        strict = config.queueing_strategy is QueueingStrategy.STRICT_FIFO
        for workload in waiting[:1] if strict else waiting:
            (pods,) = workload.pod_sets
            amount = pods.requests["cpu"] * (pods.min_count or pods.count)
            cells = [tree.cell_index[f, "cpu"] for f in world.catalog.flavors]
            at = tree.index[name]
            assert not any(tree.fits(at, ((cell, amount),)) for cell in cells)


@given(worlds())
def test_evictions_come_to_an_end(world: World) -> None:
    scheduler = world.scheduler()
    for workload in world.workloads.values():
        scheduler.enqueue(workload)

    plans = run_to_rest(scheduler, world, passes=300)

    assert len(plans) < 300


@given(worlds(most=10), st.integers(0, 9))
def test_no_victim_could_have_been_spared(world: World, choice: int) -> None:
    names = sorted(world.workloads)
    newcomer = world.workloads[names[choice % len(names)]]
    scheduler, tree = world.scheduler(), QuotaTree(world.catalog, "c0")
    cell = tree.cell_index["one", "cpu"]
    amounts = {}
    for name in names:
        workload = world.workloads[name]
        (pods,) = workload.pod_sets
        amount = ((cell, pods.requests["cpu"] * pods.count),)
        at = tree.index[workload.cluster_queue]
        if workload is not newcomer and tree.fits(at, amount):
            tree.add(at, amount)
            amounts[name] = (at, amount)
            scheduler.hold(running(workload, flavor="one"))
    scheduler.enqueue(newcomer)

    plan = scheduler.run_pass(0)
    victims = [step.victim for step in plan.preemptions]
    if not victims:
        return
    for name in victims:
        tree.remove(*amounts[name])
        scheduler.release(name)
    (admission,) = [e for e in scheduler.run_pass(0).admissions if e.workload == newcomer.id]
    (assigned,) = admission.assignment.pod_sets
    (pods,) = newcomer.pod_sets
    at = tree.index[newcomer.cluster_queue]
    got = (
        (tree.cell_index[assigned.flavors["cpu"], "cpu"], pods.requests["cpu"] * assigned.count),
    )
    assert tree.fits(at, got)
    for name in victims:
        tree.add(*amounts[name])
        # Returning one leaves no room, or would leave the newcomer borrowing, which may be what
        # the search had to avoid.
        assert not tree.fits(at, got) or tree.borrows_with(at, *got[0])
        tree.remove(*amounts[name])


@given(
    st.lists(st.sampled_from([1000, 2000, 3000]), min_size=2, max_size=4),
    st.integers(4, 24),
    st.permutations(range(4)),
)
def test_fair_sharing_converges_to_the_weights(
    weights: list[int], capacity: int, order: list[int]
) -> None:
    queues = [
        a_queue(f"q{n}", 0, cohort="c0", preemption=RECLAIM_ANY, fair_weight_milli=weight)
        for n, weight in enumerate(weights)
    ]
    world = World(
        QueueCatalog(
            flavors=[ResourceFlavor("default")],
            cohorts=[a_cohort("c0", nominal=quota(capacity))],
            cluster_queues=queues,
        ),
        Policy(fair_sharing=FairSharing()),
        {
            f"q{n}-{k}": a_workload(f"q{n}-{k}", f"q{n}", queued=k)
            for n in range(len(weights))
            for k in range(capacity)
        },
    )
    scheduler = world.scheduler()
    for n in [n for n in order if n < len(weights)]:
        for k in range(capacity):
            scheduler.enqueue(world.workloads[f"q{n}-{k}"])
        run_to_rest(scheduler, world, passes=500)

    usage = [
        scheduler.usage(f"q{n}").get(("default", "cpu"), 0) // 1000 for n in range(len(weights))
    ]
    assert sum(usage) == capacity
    for mine, weight in zip(usage, weights, strict=True):
        for theirs, other in zip(usage, weights, strict=True):
            # Moving one workload must not bring two queues closer together.
            assert (mine - 1) * other <= (theirs + 1) * weight


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=20, max_size=60),
    st.integers(4, 6),
)
def test_under_aging_a_large_workload_does_not_starve(
    arrivals: list[tuple[int, int]], size: int
) -> None:
    """Small urgent work arrives for ever; each runs for three ticks of a second."""
    catalog = QueueCatalog(flavors=[ResourceFlavor("default")], cluster_queues=[a_queue("q", 6)])
    aging = Aging(interval_ms=1_000, reserve_after_ms=5_000)
    scheduler = Scheduler(catalog, "q", Policy(aging=aging))
    scheduler.enqueue(a_workload("large", "q", size, queued=0, priority=-5))
    finishing: dict[int, list[str]] = {}
    admitted_at = None
    for tick, (cpu, priority) in enumerate(arrivals):
        for name in finishing.pop(tick, ()):
            scheduler.release(name)
        for copy in range(3):
            name = f"s{tick}-{copy}"
            scheduler.enqueue(a_workload(name, "q", cpu, queued=tick, priority=priority))
        for each in scheduler.run_pass(tick * 1000).admissions:
            finishing.setdefault(tick + 3, []).append(each.workload)
            if each.workload == "large":
                admitted_at = tick

    assert admitted_at is not None
    assert admitted_at <= 9
