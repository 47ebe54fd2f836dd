"""Breadth-first search of every interleaving, on states of small integers."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from tests.model import invariants, protocol
from tests.model.protocol import NONE, TERMINAL, Admitter, Dispatcher, Kind, Ledger, Workload
from tests.model.rules import AS_DESIGNED, Rules

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from tests.model.configuration import Configuration

Part = TypeVar("Part", bound="Hashable")
# (ledger, workloads, admitters, dispatchers), each part by its number
Global = tuple[int, ...]


class Numbers(Generic[Part]):
    """Gives equal parts the same small integer, so that a state is cheap to keep and compare."""

    def __init__(self) -> None:
        self._numbers: dict[Part, int] = {}
        self.parts: list[Part] = []

    def of(self, part: Part) -> int:
        number = self._numbers.setdefault(part, len(self.parts))
        if number == len(self.parts):
            self.parts.append(part)
        return number


class Step(NamedTuple):
    label: str
    kind: Kind
    after: Global
    fault: str | None  # of the step, or of the ledger and workloads that it wrote


@dataclass(frozen=True)
class Violation:
    """The broken invariant and the shortest way to it."""

    fault: str
    trace: tuple[str, ...]


@dataclass
class Result:
    """What a search saw; `exhausted` means every reachable state was visited."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    exhausted: bool = False
    violation: Violation | None = None
    ended: int = 0
    stuck: int = 0  # I4: states from which some workload can no longer end
    stuck_trace: tuple[str, ...] = ()
    kinds: Counter[Kind] = field(default_factory=Counter)
    labels: set[str] = field(default_factory=set)


class Space:
    """The transition system of one configuration; memoizes what one part does on its own."""

    def __init__(self, configuration: Configuration, rules: Rules) -> None:
        self.configuration, self.rules = configuration, rules
        self.count = len(configuration.workloads)
        self.first_dispatcher = 1 + self.count + configuration.admitters
        self.workloads: Numbers[Workload] = Numbers()
        self.workers: Numbers[Admitter | Dispatcher | None] = Numbers()
        self.ledgers: Numbers[Ledger] = Numbers()
        self._local: dict[int, list[tuple[str, Kind, int, str | None]]] = {}
        self._wake: dict[tuple[int, int], list[tuple[str, Kind, int]]] = {}
        self._dispatch: dict[tuple[int, int], list[tuple[str, Kind, int, int, str | None]]] = {}
        self._read: dict[Global, list[int]] = {}
        self._commit: dict[
            tuple[int, Global], list[tuple[str, Kind, Global, int, bool, str | None]]
        ] = {}

    def initial(self) -> Global:
        used = (0,) * len(self.configuration.limits[0])
        workload = self.workloads.of(protocol.new_workload(self.configuration))
        idle = self.workers.of(None)
        workers = self.configuration.admitters + self.configuration.dispatchers
        ledger = self.ledgers.of(Ledger(used, limits=0))
        return (ledger, *(workload,) * self.count, *(idle,) * workers)

    def steps(self, state: Global) -> Iterator[Step]:
        yield from self._local_steps(state)
        yield from self._dispatcher_steps(state)
        yield from self._admitter_steps(state)
        yield from self._limit_edits(state)

    def has_ended(self, state: Global) -> bool:
        """All workloads are terminal, all quota is returned, the clusters are clean."""
        return not any(self.ledgers.parts[state[0]].used) and all(
            workload.state in TERMINAL and not any(workload.jobs)
            for workload in (self.workloads.parts[n] for n in state[1 : 1 + self.count])
        )

    def _local_steps(self, state: Global) -> Iterator[Step]:
        for at in range(1, 1 + self.count):
            number = state[at]
            if number not in self._local:
                self._local[number] = list(self._workload_alone(number))
            for label, kind, written, fault in self._local[number]:
                after = (*state[:at], written, *state[at + 1 :])
                yield Step(f"w{at - 1} {label}", kind, after, fault)

    def _workload_alone(self, number: int) -> Iterator[tuple[str, Kind, int, str | None]]:
        before = self.workloads.parts[number]
        for label, kind, after in (
            *protocol.cluster_steps(self.configuration, before),
            *protocol.mark_steps(self.configuration, self.rules, before),
        ):
            yield label, kind, self.workloads.of(after), invariants.mark_fault(before, after)

    def _dispatcher_steps(self, state: Global) -> Iterator[Step]:
        for at in range(self.first_dispatcher, len(state)):
            worker = self.workers.parts[state[at]]
            if isinstance(worker, Dispatcher):
                yield from self._dispatch_steps(state, at, worker)
                continue
            for workload in range(self.count):
                key = (workload, state[1 + workload])
                if key not in self._wake:
                    woken = protocol.wake_steps(self.workloads.parts[key[1]], workload)
                    self._wake[key] = [
                        (label, kind, self.workers.of(d)) for label, kind, d in woken
                    ]
                for label, kind, started in self._wake[key]:
                    after = (*state[:at], started, *state[at + 1 :])
                    yield Step(f"w{workload} {label}", kind, self._sorted(after), None)

    def _dispatch_steps(self, state: Global, at: int, dispatcher: Dispatcher) -> Iterator[Step]:
        mine = 1 + dispatcher.workload
        key = (state[at], state[mine])
        if key not in self._dispatch:
            before = self.workloads.parts[state[mine]]
            self._dispatch[key] = [
                (
                    label,
                    kind,
                    self.workers.of(kept),
                    self.workloads.of(written),
                    invariants.mark_fault(before, written),
                )
                for label, kind, kept, written in protocol.dispatch_steps(
                    self.configuration, self.rules, dispatcher, before
                )
            ]
        for label, kind, kept, written, fault in self._dispatch[key]:
            after = list(state)
            after[at], after[mine] = kept, written
            label_of = f"w{dispatcher.workload} {label} (g{dispatcher.generation})"
            yield Step(label_of, kind, self._sorted(tuple(after)), fault)

    def _admitter_steps(self, state: Global) -> Iterator[Step]:
        shared = state[: 1 + self.count]  # the ledger and the workloads
        for at in range(1 + self.count, self.first_dispatcher):
            worker = self.workers.parts[state[at]]
            if isinstance(worker, Admitter):
                yield from self._commit_steps(state, at, worker)
                continue
            if shared not in self._read:
                self._read[shared] = list(self._snapshots(shared))
            for started in self._read[shared]:
                after = (*state[:at], started, *state[at + 1 :])
                yield Step("read", Kind.PROGRESS, self._sorted(after), None)

    def _snapshots(self, shared: Global) -> Iterator[int]:
        ledger, workloads = self._parts(shared)
        for plan in protocol.plans(self.configuration, self.rules, ledger, workloads):
            snapshot = Admitter(current=True, limits_current=True, used=ledger.used, plan=plan)
            yield self.workers.of(snapshot)

    def _parts(self, shared: Global) -> tuple[Ledger, tuple[Workload, ...]]:
        workloads = tuple(self.workloads.parts[number] for number in shared[1:])
        return self.ledgers.parts[shared[0]], workloads

    def _commit_steps(self, state: Global, at: int, admitter: Admitter) -> Iterator[Step]:
        shared = state[: 1 + self.count]
        key = (state[at], shared)
        if key not in self._commit:
            self._commit[key] = list(self._commits(shared, admitter))
        for label, kind, written, kept, raises_version, fault in self._commit[key]:
            after = [*written, *state[1 + self.count :]]
            after[at] = kept
            if raises_version:
                self._outdate(after, but=at)
            snapshot_fault = self._snapshot_fault(after) if written[0] != shared[0] else None
            yield Step(label, kind, self._sorted(tuple(after)), fault or snapshot_fault)

    def _commits(
        self, shared: Global, admitter: Admitter
    ) -> Iterator[tuple[str, Kind, Global, int, bool, str | None]]:
        ledger, workloads = self._parts(shared)
        for commit in protocol.commit_steps(
            self.configuration, self.rules, admitter, ledger, workloads
        ):
            faults = [
                invariants.quota_fault(self.configuration, ledger, commit.ledger),
                invariants.ledger_fault(
                    self.configuration,
                    commit.ledger,
                    tuple(workload.reservation != NONE for workload in commit.workloads),
                ),
                *map(invariants.step_fault, workloads, commit.workloads),
                *map(invariants.workload_fault, commit.workloads),
            ]
            written = (
                self.ledgers.of(commit.ledger),
                *(self.workloads.of(workload) for workload in commit.workloads),
            )
            kept = self.workers.of(commit.admitter)
            fault = next(filter(None, faults), None)
            yield commit.label, commit.kind, written, kept, commit.raises_version, fault

    def _outdate(self, state: list[int], but: int) -> None:
        for at in range(1 + self.count, self.first_dispatcher):
            worker = self.workers.parts[state[at]]
            if at != but and isinstance(worker, Admitter):
                state[at] = self.workers.of(protocol.outdated(self.rules, worker))

    def _snapshot_fault(self, state: list[int]) -> str | None:
        used = self.ledgers.parts[state[0]].used
        for at in range(1 + self.count, self.first_dispatcher):
            worker = self.workers.parts[state[at]]
            if isinstance(worker, Admitter) and worker.current and worker.used != used:
                return "I7 the ledger changed and its version did not rise"
        return None

    def _limit_edits(self, state: Global) -> Iterator[Step]:
        ledger = self.ledgers.parts[state[0]]
        if ledger.limits + 1 == len(self.configuration.limits):
            return
        after = list(state)
        after[0] = self.ledgers.of(ledger._replace(limits=ledger.limits + 1))
        for at in range(1 + self.count, self.first_dispatcher):
            worker = self.workers.parts[state[at]]
            if isinstance(worker, Admitter):
                after[at] = self.workers.of(protocol.outlimited(self.rules, worker))
        yield Step("limits edited", Kind.WORLD, self._sorted(tuple(after)), None)

    def _sorted(self, state: Global) -> Global:
        """Workers of one kind are interchangeable; keeping them sorted saves states."""
        split, end = 1 + self.count, self.first_dispatcher
        if self.configuration.admitters < 2 and self.configuration.dispatchers < 2:
            return state
        return (*state[:split], *sorted(state[split:end]), *sorted(state[end:]))


@dataclass
class _Search:
    """The visited states in order of discovery, and how each was reached."""

    number: dict[Global, int] = field(default_factory=dict)
    parents: array[int] = field(default_factory=lambda: array("q"))
    depths: array[int] = field(default_factory=lambda: array("i"))
    labels: Numbers[str] = field(default_factory=Numbers)
    label_of: array[int] = field(default_factory=lambda: array("i"))
    progress_from: array[int] = field(default_factory=lambda: array("i"))
    progress_to: array[int] = field(default_factory=lambda: array("i"))

    def add(self, state: Global, parent: int, label: str, depth: int) -> int:
        number = len(self.number)
        self.number[state] = number
        self.parents.append(parent)
        self.label_of.append(self.labels.of(label))
        self.depths.append(depth)
        return number

    def trace(self, number: int) -> tuple[str, ...]:
        steps: list[str] = []
        while number > 0:
            steps.append(self.labels.parts[self.label_of[number]])
            number = self.parents[number]
        return tuple(reversed(steps))


def explore(
    configuration: Configuration, rules: Rules = AS_DESIGNED, max_states: int = 10_000_000
) -> Result:
    """Searches breadth first until a fault, the end, or `max_states`.

    I4 is computed after a complete search, over the steps of sweep, observers and Kubernetes
    only: no message, no user and no other accident may be needed to bring a workload home.
    """
    space, search, result = Space(configuration, rules), _Search(), Result()
    frontier = [space.initial()]
    search.add(frontier[0], -1, "", 0)
    ended: list[int] = []
    while frontier and result.violation is None and len(search.number) <= max_states:
        result.depth += 1
        found: list[Global] = []
        for state in frontier:
            source = search.number[state]
            if space.has_ended(state):
                ended.append(source)
            if _expand(space, search, result, state, found):
                break
        frontier = found
    result.states = len(search.number)
    result.depth = max(search.depths)
    result.exhausted = not frontier and result.violation is None
    if result.exhausted:
        result.ended = len(ended)
        _mark_stuck(search, result, ended)
    return result


def _expand(
    space: Space, search: _Search, result: Result, state: Global, found: list[Global]
) -> bool:  # fmt: skip
    """Adds the successors of one state; True when a fault ends the search."""
    source = search.number[state]
    for step in space.steps(state):
        result.transitions += 1
        result.kinds[step.kind] += 1
        result.labels.add(step.label)
        if step.fault:
            result.violation = Violation(step.fault, (*search.trace(source), step.label))
            return True
        target = search.number.get(step.after)
        if target is None:
            target = search.add(step.after, source, step.label, result.depth)
            found.append(step.after)
        if step.kind is Kind.PROGRESS or step.kind is Kind.CRASH:
            search.progress_from.append(source)
            search.progress_to.append(target)
    return False


def _mark_stuck(search: _Search, result: Result, ended: list[int]) -> None:
    """Walks back from the ends along progress; what is not met is stuck."""
    states = result.states
    first = array("i", bytes(4 * (states + 1)))
    for target in search.progress_to:
        first[target + 1] += 1
    for number in range(states):
        first[number + 1] += first[number]
    fill = array("i", first)
    sources = array("i", bytes(4 * len(search.progress_from)))
    for source, target in zip(search.progress_from, search.progress_to, strict=True):
        sources[fill[target]] = source
        fill[target] += 1
    can_end = bytearray(states)
    stack = list(ended)
    for number in stack:
        can_end[number] = 1
    while stack:
        target = stack.pop()
        for source in sources[first[target] : first[target + 1]]:
            if not can_end[source]:
                can_end[source] = 1
                stack.append(source)
    result.stuck = states - sum(can_end)
    if result.stuck:
        result.stuck_trace = search.trace(can_end.index(0))
