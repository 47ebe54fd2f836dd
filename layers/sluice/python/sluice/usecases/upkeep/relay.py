"""Turn changes of workload records into kicks, commands, timeline lines and lifecycle events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.core.lifecycle.happenings import happenings, unrecorded
from sluice.core.lifecycle.record import TERMINAL, State, awaits_release, is_migrating
from sluice.ports import Bus, Commands, Kicks, Provisions, StreamRecord, Timeline


@dataclass(frozen=True, kw_only=True)
class Relay:
    """Decides nothing; every effect may be lost or repeated without harm."""

    kicks: Kicks
    commands: Commands
    provisions: Provisions
    timeline: Timeline
    bus: Bus

    def __call__(self, changes: Iterable[StreamRecord]) -> None:
        changes = list(changes)
        self.kicks.kick(c.after.root for c in changes if wants_kick(c))
        by_cluster: dict[str, list[str]] = {}
        for change in changes:
            if wants_command(change):
                by_cluster.setdefault(change.after.cluster, []).append(change.after.id)
        for cluster, ids in by_cluster.items():
            self.commands.send(cluster, ids)
        self.provisions.ask(c.after.cluster for c in changes if wants_capacity(c))
        written = [lines for c in changes if (lines := unrecorded(c.before, c.after, c.at))]
        if written:
            self.timeline.append_together(written)
        if lines := [line for c in changes for line in happenings(c.before, c.after, c.at)]:
            self.bus.publish(lines)


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
    """The cluster has to be changed: a Job to create or to delete."""
    before, now = change.before, change.after
    fresh = before is None or (before.state, before.generation) != (now.state, now.generation)
    if now.state is State.ADMITTED:
        return not now.gated and (fresh or (before is not None and before.gated))
    if now.state is State.RECLAIMING:
        fenced = now.gone and not (before is not None and before.gone)
        return (fresh and not now.gone) or (is_migrating(now) and fenced)
    return False


def wants_capacity(change: StreamRecord) -> bool:
    """A cluster's share of the ledger grew; that it shrank is seen soon enough."""
    before, now = change.before, change.after
    return now.state is State.ADMITTED and (before is None or before.state is not State.ADMITTED)
