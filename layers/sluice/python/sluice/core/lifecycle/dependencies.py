"""`dependsOn`: whether the workloads that somebody waits for have ended as they were to end.

A blocked workload stands outside its queue. It enters once every condition holds, and ends where
one can never hold any more. Dependencies count within one namespace only.
"""

from __future__ import annotations

from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.options import Dependency, DependencyCondition
from sluice.core.lifecycle.record import TERMINAL, State, phase
from sluice.core.lifecycle.record_entries import StatusReason
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sluice.core.lifecycle.record import Change, Workload

# A name means the newest workload before its dependent. Messages overtake one another and indexes
# lag, so a name is not looked up at once.
SETTLED_MS = 5_000
OVERTAKEN_MS = 1_000
# For so long whom somebody waits for may still be on the way.
UNKNOWN_MS = 300_000
_ENDED = {
    DependencyCondition.SUCCEEDED: "to succeed",
    DependencyCondition.FINISHED: "to end",
    DependencyCondition.FAILED: "to fail",
}
_NAMED = 3


def blocked(workload: Workload) -> Workload:
    """A new record as it is stored: outside its queue if it waits for others."""
    if not workload.options.depends_on:
        return workload
    return replace(workload, blocked=True, reason=waits_for(workload.options.depends_on))


def linked(workloads: Sequence[Workload]) -> list[Workload]:
    """The records of one message: a name means its neighbour before anything older."""
    found = []
    for workload in workloads:
        near = {
            other.name: other.id
            for other in workloads
            if other.namespace == workload.namespace and other.id != workload.id
        }
        found.append(_knowing(workload, near) if workload.blocked else workload)
    return found


def nameless(workload: Workload, now: int) -> bool:
    """Whether one of its names is to be looked up now."""
    settled = now >= workload.created_at + SETTLED_MS
    return settled and any(not each.id for each in workload.options.depends_on)


def meant(workload: Workload, candidates: Iterable[Workload]) -> dict[str, str]:
    """Name → id of the newest workload of its namespace that came before it."""
    latest = workload.created_at + OVERTAKEN_MS
    asked = {each.name for each in workload.options.depends_on if not each.id}
    before = [
        other
        for other in candidates
        if other.name in asked
        and other.namespace == workload.namespace
        and other.id != workload.id
        and other.created_at <= latest
    ]
    return {w.name: w.id for w in sorted(before, key=lambda w: (w.created_at, w.id))}


def steps(
    waiting: Sequence[Workload],
    targets: Mapping[str, Workload],
    names: Mapping[str, Mapping[str, str]],
    now: int,
) -> Iterator[Change]:
    """What becomes of blocked workloads.

    `targets` are the records that their ids name, as far as they exist; `names` says of a blocked
    workload whom its names mean.
    """
    circles = _circles(waiting)
    for workload in waiting:
        if path := circles.get(workload.id):
            message = f"waits for itself: {' → '.join(path)}; take one of them out"
            yield lifecycle.reject_pending(
                workload, Reason.DEPENDENCY_CYCLE, "spec.dependsOn", message, now
            )
            continue
        known = _knowing(workload, names.get(workload.id, {}))
        change = _step(known, targets, now)
        if change is not None:
            yield change
        elif known is not workload:
            yield lifecycle.wait_for(workload, known.options, known.reason)


def _step(workload: Workload, targets: Mapping[str, Workload], now: int) -> Change | None:
    left = []
    for place, each in enumerate(workload.options.depends_on):
        target = targets.get(each.id)
        if target is None or target.namespace != workload.namespace:
            if now > workload.created_at + UNKNOWN_MS:
                field = f"spec.dependsOn[{place}].{'name' if each.name else 'id'}"
                message = (
                    f"no workload {each} was submitted to namespace {workload.namespace} before; "
                    "submit it first, or name another one"
                )
                return lifecycle.reject_pending(
                    workload, Reason.UNKNOWN_DEPENDENCY, field, message, now
                )
            left.append(each)
            continue
        held = _holds(each.condition, target)
        if held is False:
            message = (
                f"waited for {each} {_ENDED[each.condition]}, which ended as "
                f"{phase(target)}; submit it again under a new key once that is mended"
            )
            return lifecycle.cancel_pending(workload, message, now, Reason.DEPENDENCY_FAILED)
        if held is None:
            left.append(each)
    return None if left else lifecycle.unblock(workload)


def _holds(condition: DependencyCondition, target: Workload) -> bool | None:
    """Whether the condition is met; None as long as it still may be."""
    if target.state not in TERMINAL:
        return None
    if condition is DependencyCondition.FINISHED:
        return target.state is not State.REJECTED
    succeeded = target.result.succeeded
    wanted = condition is DependencyCondition.SUCCEEDED
    return target.state is State.FINISHED and succeeded is wanted


def waits_for(dependencies: Sequence[Dependency]) -> StatusReason:
    """The reason that people read meanwhile."""
    shown = [f"{each} {_ENDED[each.condition]}" for each in dependencies[:_NAMED]]
    more = f" and {len(dependencies) - _NAMED} more" if len(dependencies) > _NAMED else ""
    message = f"needs {', '.join(shown)}{more}"
    return StatusReason(Reason.WAITING_FOR_DEPENDENCY.value, message)


def _knowing(workload: Workload, ids: Mapping[str, str]) -> Workload:
    """The workload with ids for those of its names that are known now; itself if none is."""
    asked = workload.options.depends_on
    entries = tuple(e if e.id else replace(e, id=ids.get(e.name, "")) for e in asked)
    if entries == asked:
        return workload
    known = replace(workload, options=replace(workload.options, depends_on=entries))
    return replace(known, reason=waits_for(known.options.depends_on))


def _circles(waiting: Sequence[Workload]) -> dict[str, list[str]]:
    """Workloads that wait for themselves, each with the names on the way round."""
    name = {w.id: w.name for w in waiting}
    edges = {w.id: {each.id for each in w.options.depends_on} & name.keys() for w in waiting}
    found: dict[str, list[str]] = {}
    while True:
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            circle = error.args[1][:0:-1]  # its last node is its first again; edges the other way
            named = [name[i] for i in circle]
            found |= {i: [*named[n:], *named[: n + 1]] for n, i in enumerate(circle)}
            edges = {i: targets - {*circle} for i, targets in edges.items() if i not in circle}
        else:
            return found
