"""Turn changes of workload records into kicks, commands, timeline lines and lifecycle events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.core.lifecycle.happenings import Happening, happenings, unrecorded
from sluice.core.lifecycle.record import TERMINAL, State, Workload, awaits_release, is_migrating
from sluice.ports import Bus, Commands, Kicks, News, Provisions, StreamRecord, Timeline


@dataclass(frozen=True, kw_only=True)
class Relay:
    """Decides nothing; every effect may be lost or repeated without harm."""

    kicks: Kicks
    commands: Commands
    provisions: Provisions
    timeline: Timeline
    bus: Bus

    def __call__(self, changes: Iterable[StreamRecord]) -> list[Exception]:
        """Why changes were left out that nobody understands; the others are relayed."""
        found, odd = list[Consequences](), list[Exception]()
        for change in changes:
            try:
                found.append(consequences(change))
            except Exception as error:  # noqa: BLE001, it concerns this record alone
                odd.append(error)
        news: dict[str, News] = {}
        for each in found:
            if each.kick is not None:
                news[each.root] = news.get(each.root, each.kick) | each.kick
        self.kicks.kick(news, news)
        by_cluster: dict[str, list[str]] = {}
        for each in found:
            if each.command:
                by_cluster.setdefault(each.cluster, []).append(each.id)
        for cluster, ids in by_cluster.items():
            self.commands.send(cluster, ids)
        self.provisions.ask(each.cluster for each in found if each.capacity)
        if written := [each.unrecorded for each in found if each.unrecorded]:
            self.timeline.append_together(written)
        if lines := [line for each in found for line in each.happenings]:
            self.bus.publish(lines)
        return odd


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows from one change of a record."""

    id: str
    root: str
    cluster: str
    kick: News | None
    command: bool
    capacity: bool
    unrecorded: list[Happening]
    happenings: list[Happening]


def consequences(change: StreamRecord) -> Consequences:
    """Raises whatever a record meets that is not as this code writes it."""
    before, now = change.before, change.after
    for text in (now.id, now.root, now.cluster, now.cq, now.namespace):
        if not isinstance(text, str):
            raise TypeError(f"{text!r:.40} is no text")
    here = News(frozenset({now.cq}), frozenset({now.namespace}))
    return Consequences(
        now.id,
        now.root,
        place(now),
        here if wants_kick(change) else None,
        wants_command(change),
        wants_capacity(change),
        unrecorded(before, now, change.at),
        list(happenings(before, now, change.at)),
    )


def wants_kick(change: StreamRecord) -> bool:
    """New work or wishes, quota that waits to be released, or an end that others wait for."""
    before, now = change.before, change.after
    if now.state is State.PENDING and not now.held:
        return (
            before is None
            or before.state is not State.PENDING
            or before.held
            or (before.blocked and not now.blocked)
            or len(now.waits) > len(before.waits)
        )
    if now.state is State.ADMITTED and before is not None and now.gated:
        return len(now.answers) > len(before.answers)
    if now.state in TERMINAL and before is not None and before.state is State.PENDING:
        return True
    return awaits_release(now) and not (before is not None and awaits_release(before))


def wants_command(change: StreamRecord) -> bool:
    """The cluster has to be changed: a Job to create or delete, or one to be told of its end."""
    before, now = change.before, change.after
    if now.object and now.state is State.CANCELLED:
        return before is not None and before.state is State.PENDING
    fresh = before is None or (before.state, before.generation) != (now.state, now.generation)
    if now.state is State.ADMITTED:
        return not now.gated and (fresh or (before is not None and before.gated))
    if now.state is State.RECLAIMING:
        fenced = now.gone and not (before is not None and before.gone)
        return (fresh and not now.gone) or (is_migrating(now) and fenced)
    return False


def place(workload: Workload) -> str:
    """The cluster of its Job; who has none yet may stand at the door of one."""
    at_door = workload.object.cluster if workload.object else ""
    return workload.cluster or at_door


def wants_capacity(change: StreamRecord) -> bool:
    """A cluster's share of the ledger grew; that it shrank is seen soon enough."""
    before, now = change.before, change.after
    return now.state is State.ADMITTED and (before is None or before.state is not State.ADMITTED)
