"""Rows of `bench_growth`: what it takes to admit, release and sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sluice.ports import News
from sluice.usecases.admitting.admit import Admit

from tests.bench.growth import Case, Row
from tests.bench.metered.aws import MeteredAWS
from tests.bench.population import Population, Shape, admit, catalog

ADMIT_MB, ADMIT_SECONDS = 1024, 20
HOLDERS: Final = 5_000_000  # numbers of workloads that run
ENDED: Final = 9_000_000
PREEMPTION: Final = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
ROOT: Final = "root-0"


def warm(use_case: Admit, root: str = ROOT, passes: int = 1) -> None:
    """A process that has served this root before."""
    for _ in range(passes):
        use_case(root)


def outcome_of(use_case: Admit, root: str = ROOT) -> Callable[[], Mapping[str, float]]:
    """As a kick about the first queue asks for it."""

    def call() -> Mapping[str, float]:
        outcome = use_case(root, news=News(frozenset({"q-0"}), frozenset({"ns-0"})))
        return {"admitted": outcome.admitted, "released": outcome.released}

    return call


def by_queues(size: int) -> Case:
    """So many queues below one root, all empty but one, whose newcomer fits."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(queues=size))
    use_case = admit(aws)
    warm(use_case)
    people.wait(1, 0)
    return Case(aws, outcome_of(use_case))


def by_namespaces(size: int) -> Case:
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(namespaces=size))
    use_case = admit(aws)
    catalog(aws).snapshot()
    warm(use_case)
    people.wait(1, 0)
    return Case(aws, outcome_of(use_case))


def by_backlog(size: int) -> Case:
    """One full queue with so many behind; nothing has ended, and nobody has looked yet."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(cpus=100))
    people.hold(100, first=HOLDERS)
    people.count()
    people.wait(size)
    return Case(aws, outcome_of(admit(aws)))


def by_full_queues(size: int) -> Case:
    """So many full queues with 2,000 behind each."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(queues=size, cpus=100))
    for queue in range(size):
        people.hold(100, queue, first=HOLDERS + 1_000 * queue)
        people.wait(2_000, queue, first=10_000 * queue)
    people.count()
    return Case(aws, outcome_of(admit(aws)))


def by_queues_with_one_end(size: int) -> Case:
    """So many full queues, looked at before; now one workload of the first has ended."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(queues=size, cpus=100))
    for queue in range(size):
        people.hold(100 - (queue == 0), queue, first=HOLDERS + 1_000 * queue)
        people.wait(2_000, queue, first=10_000 * queue)
    people.end(1, 0, first=ENDED)
    people.count()
    use_case = admit(aws)
    warm(use_case)
    people.end(1, 0, first=ENDED + 1)
    return Case(aws, outcome_of(use_case))


def by_backlog_with_one_end(size: int) -> Case:
    """One full queue with so many behind, looked at before; now one has ended."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(cpus=100))
    people.hold(99, first=HOLDERS)
    people.end(1, first=ENDED)
    people.count()
    people.wait(size)
    use_case = admit(aws)
    warm(use_case)
    people.end(1, first=ENDED + 1)
    return Case(aws, outcome_of(use_case))


def by_queues_that_fit(size: int) -> Case:
    """So many queues with 100 each, all of which fit."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(queues=size, cpus=200))
    for queue in range(size):
        people.wait(100, queue, first=10_000 * queue)
    return Case(aws, outcome_of(admit(aws)))


def by_running(preemption: Mapping[str, str], *, full: bool) -> Callable[[int], Case]:
    """One newcomer beside so many running; it fits, or the queue is `full`."""

    def prepare(size: int) -> Case:
        aws = MeteredAWS(ADMIT_MB)
        people = Population(aws, Shape(cpus=size + (not full), preemption=preemption))
        people.hold(size, first=HOLDERS)
        people.count()
        use_case = admit(aws)
        warm(use_case)
        people.wait(1)
        return Case(aws, outcome_of(use_case))

    return prepare


def by_jobs_that_fit(queues: int, running: int = 0) -> Callable[[int], Case]:
    """Admissions per second: so many jobs at once that all fit."""

    def prepare(size: int) -> Case:
        aws = MeteredAWS(ADMIT_MB)
        preemption = PREEMPTION if running else {}
        shape = Shape(queues=queues, cpus=running + size, preemption=preemption)
        people = Population(aws, shape)
        if running:
            people.hold(running, first=HOLDERS)
            people.count()
        for queue in range(queues):
            people.wait(size // queues, queue, first=100_000 * queue)
        use_case = admit(aws)

        def call() -> Mapping[str, float]:
            admitted, begun = 0, aws.clock.ms
            while more := use_case(ROOT).admitted:
                admitted += more
            seconds = (aws.clock.ms - begun) / 1000
            return {"admitted": admitted, "per second": admitted / seconds}

        return Case(aws, call)

    return prepare


def by_machines(size: int) -> Case:
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape())
    people.machines(size)
    people.wait(1)
    return Case(aws, outcome_of(admit(aws)))


def by_cells(size: int) -> Case:
    """So many queues that use 16 cells each; the second end that makes the ledger be written."""
    aws = MeteredAWS(ADMIT_MB)
    people = Population(aws, Shape(queues=size, cpus=100, flavors=8))
    for queue in range(size):
        people.hold(1, queue, first=HOLDERS + queue)
        for flavor in range(8):
            cells = people.usage[ROOT][f"q-{queue}"]
            cells[f"flavor-{flavor}|cpu"] = 90_000 + queue
            cells[f"flavor-{flavor}|memory"] = 90 * 2**30
    people.end(1, 0, first=ENDED)
    people.count()
    use_case = admit(aws)
    warm(use_case)
    people.end(1, 0, first=ENDED + 1)
    return Case(aws, outcome_of(use_case))


def rows() -> Iterator[Row]:
    def of(
        name: str, parameter: str, sizes: tuple[int, ...], prepare: Callable[[int], Case]
    ) -> Row:
        return Row(f"admit: {name}", parameter, sizes, prepare, ADMIT_SECONDS)

    yield of("queues", "ClusterQueues", (1, 10, 100, 1_000), by_queues)
    yield of("namespaces", "namespaces", (1, 10, 100, 1_000), by_namespaces)
    yield of("backlog, first look", "waiting", (100, 10_000, 1_000_000), by_backlog)
    yield of("backlog, one end", "waiting", (100, 10_000, 1_000_000), by_backlog_with_one_end)
    yield of("full queues, first look", "full queues of 2,000", (1, 10, 40, 100), by_full_queues)
    yield of("full queues, one end", "full queues", (1, 10, 40, 100), by_queues_with_one_end)
    yield of("queues that fit", "queues of 100", (10, 100, 430), by_queues_that_fit)
    running = (10, 1_000, 10_000, 50_000)
    yield of("running, no preemption", "running", running, by_running({}, full=False))
    yield of("running, preemption, fits", "running", running, by_running(PREEMPTION, full=False))
    yield of("running, preemption, full", "running", running, by_running(PREEMPTION, full=True))
    yield of("machines", "machines", (10, 1_000, 5_000), by_machines)
    yield of("ledger of 16 cells a queue", "queues", (10, 100, 990), by_cells)
    jobs = (2_000,)
    yield Row("throughput: one queue", "jobs", jobs, by_jobs_that_fit(1))
    yield Row("throughput: ten queues", "jobs", jobs, by_jobs_that_fit(10))
    busy = by_jobs_that_fit(1, running=10_000)
    yield Row("throughput: preemption, 10,000 running", "jobs", jobs, busy)
