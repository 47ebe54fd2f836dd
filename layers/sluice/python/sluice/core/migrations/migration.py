"""The migration of one workload off a dying machine: its record, and each step of it.

    NOTICED → DUMPING ∥ replacing → DUMPED → FENCED → RESTORING → RUNNING (generation + 1), or LOST

In DUMPING the pods are checkpointed at once and keep running. When the replacement is ready, they
are checkpointed once more and held. DUMPED says which of the two the next generation starts from.
The victim of a preemption takes these steps as far as DUMPED (core.migrations.victim_checkpoint).
That only one run of a workload exists is ensured by the workload's own record
(core.lifecycle.transitions: reclaim, gone, migrate); nothing here can break it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.fit import MARGIN_MS, CheckpointAction
from sluice.core.lifecycle.record import Workload
from sluice.core.migrations import gangs
from sluice.core.migrations.checkpointing import Checkpoint, Part
from sluice.core.migrations.interruption import REQUEST_MS, NoticeKind


class Stage(StrEnum):
    NOTICED = "NOTICED"
    DUMPING = "DUMPING"
    DUMPED = "DUMPED"
    FENCED = "FENCED"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    LOST = "LOST"


ENDED: Final = frozenset({Stage.RUNNING, Stage.LOST})


_BEFORE_STOP: Final = (Stage.NOTICED, Stage.DUMPING, Stage.DUMPED)


_BEFORE_DUMPED: Final = (Stage.NOTICED, Stage.DUMPING)


@dataclass(frozen=True, slots=True)
class PodCheckpoint:
    """The checkpoint of one pod, as its node reported it."""

    uri: str
    size: int = 0
    took_ms: int = 0
    at: int = 0
    image: str = ""
    held_at: int = 0
    """Since when the pod's processes stand still; 0 if they worked on after the dump."""
    digest: str = ""
    node: str = ""
    part: str = ""
    """Which member of a gang it is (core.migrations.gangs); empty for others."""


def whole_checkpoint(
    workload: Workload,
    saved: Iterable[PodCheckpoint],
    driver: CheckpointMode,
    cpus: Mapping[str, str],
    otherwise_at: int = 0,
) -> Checkpoint | None:
    """What the catalogue is to remember of a pod, or of all the members of a gang.

    `cpus`: node → its CPU (core.migrations.cpu_compatibility), as far as it is known.

    None unless the members are as many as the workload has, each another one, and all of one order.
    A set is as old as its oldest part, and took as long as its slowest.
    """
    every = sorted(saved, key=lambda one: (len(one.part), one.part))
    if len(every) != gangs.members(workload):
        return None
    (first, *others) = every
    uri, size, image, node = first.uri, first.size, first.image, first.node
    cpu = cpus.get(node, "")
    parts: tuple[Part, ...] = ()
    if others:
        uri, size = gangs.address(one.uri for one in every), sum(one.size for one in every)
        image = node = cpu = ""
        if not uri or len({one.part for one in every} - {""}) != len(every):
            return None
        parts = tuple(
            Part(
                one.part,
                one.uri,
                one.size,
                one.digest,
                one.node,
                one.image,
                cpus.get(one.node, ""),
            )
            for one in every
        )
    return Checkpoint(
        workload.id,
        workload.generation,
        uri,
        min(one.at for one in every) or otherwise_at,
        driver,
        size,
        max(one.took_ms for one in every),
        workload.restore_from,
        node,
        image,
        parts=parts,
        cpu=cpu,
    )


@dataclass(frozen=True, slots=True)
class Migration:
    """One record of the table Migrations; times in epoch ms, 0 for not yet."""

    workload: str
    generation: int
    cluster: str
    instance: str
    node: str
    kind: str
    noticed_at: int
    received_at: int
    deadline: int
    driver: CheckpointMode
    action: CheckpointAction
    reason: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage = Stage.NOTICED
    instance_type: str = ""
    zone: str = ""
    grace_ms: int = 0
    pods: tuple[str, ...] = ()
    saved: Mapping[str, PodCheckpoint] = field(default_factory=dict)
    first: Mapping[str, PodCheckpoint] = field(default_factory=dict)
    """The dump after which the source worked on; empty until it is whole."""
    first_order: str = ""
    """The order of an extra checkpoint that was under way, which serves as the first; else none."""
    first_at: int = 0
    """When the order of the first dump was answered, by `first` or by `first_error`."""
    first_error: str = ""
    last_at: int = 0
    """When the dump was ordered that holds; at once where there is time for one only."""
    last_reason: str = ""
    error: str = ""
    replacement_at: int = 0
    dumped_at: int = 0
    failed_at: int = 0
    stopping_at: int = 0
    fenced_at: int = 0
    restoring_at: int = 0
    running_at: int = 0
    checkpoint: str = ""
    checkpoint_at: int = 0
    called_off: bool = False
    """The same generation runs on, and may migrate later: another record takes its place."""

    @property
    def id(self) -> str:
        name = eviction_id if self.kind == NoticeKind.EVICTION else migration_id
        return name(self.workload, self.generation)

    @property
    def give_up_at(self) -> int:
        """When the source is stopped whatever else happens, so that it has its grace.

        Who is saved needs none: it goes on elsewhere from before its SIGTERM. Nor is any kept back
        for who is yet to be saved, as `fit` promised, until an attempt has failed.
        """
        hopes = bool(self.first) or (self.action is CheckpointAction.DUMP and not self.first_error)
        return self.deadline - (0 if hopes else self.grace_ms) - MARGIN_MS

    @property
    def may_be_called_off(self) -> bool:
        """Whether the workload may stay where it is: a user asked, and no machine goes away.

        A notice that comes meanwhile sets an earlier deadline.
        """
        stays = self.deadline - self.noticed_at >= REQUEST_MS
        return self.kind == NoticeKind.REQUEST and not self.checkpoint and stays

    @property
    def dumps(self) -> bool:
        """Whether its source is to be saved, and is not yet."""
        return self.action is CheckpointAction.DUMP and self.stage in _BEFORE_DUMPED

    @property
    def awaits_dump(self) -> bool:
        """Whether one is under way, and the source does not work on between its two dumps."""
        return self.dumps and bool(self.last_at or not self.first_at)


def migration_id(workload: str, generation: int) -> str:
    return f"{workload}#{generation}"


def eviction_id(workload: str, generation: int) -> str:
    """Apart from that of a move, which a notice may have begun and lost its race."""
    return f"{workload}#{generation}#yield"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One conditional write: the stages in which it holds, and the attributes that it sets.

    `once` names a moment that is recorded only by the first who sees it, so that a race of two
    observers tells it once. `unchanged` names an attribute that must still be as it was seen.
    """

    before: Migration
    stages: tuple[Stage, ...]
    set: Mapping[str, Any]
    once: str = ""
    unchanged: str = ""

    def holds(self, migration: Migration) -> bool:
        untold = not self.once or not getattr(migration, self.once)
        name = self.unchanged
        same = not name or getattr(migration, name) == getattr(self.before, name)
        return migration.stage in self.stages and untold and same

    def after(self, migration: Migration) -> Migration:
        return replace(migration, **self.set)


def order(migration: Migration) -> MigrationStep:
    """The checkpoint is ordered, or the application warned."""
    return MigrationStep(migration, (Stage.NOTICED,), {"stage": Stage.DUMPING})


def sooner(migration: Migration, deadline: int) -> MigrationStep:
    """Another channel knows of an earlier end: the earliest counts."""
    return MigrationStep(migration, _BEFORE_STOP, {"deadline": min(deadline, migration.deadline)})


def replaced(migration: Migration, now: int) -> MigrationStep:
    """The replacement is ready; this side runs while the other dumps."""
    return MigrationStep(migration, _BEFORE_STOP, {"replacement_at": now}, "replacement_at")


def first_saved(
    migration: Migration, saved: Mapping[str, PodCheckpoint], now: int
) -> MigrationStep:
    """Every pod is saved, and works on."""
    return MigrationStep(
        migration, _BEFORE_DUMPED, {"first": dict(saved), "first_at": now}, "first_at"
    )


def first_failed(migration: Migration, why: str, now: int) -> MigrationStep:
    return MigrationStep(
        migration, _BEFORE_DUMPED, {"first_error": why, "first_at": now}, "first_at"
    )


def last_ordered(migration: Migration, why: str, now: int) -> MigrationStep:
    """The source is saved once more, and held from then on."""
    return MigrationStep(migration, _BEFORE_DUMPED, {"last_at": now, "last_reason": why}, "last_at")


def first_taken(migration: Migration, why: str, now: int) -> MigrationStep:
    """The source is not saved once more. Holds only while that has not been ordered."""
    change = {"stage": Stage.DUMPED, "saved": dict(migration.first), "dumped_at": now}
    return MigrationStep(migration, _BEFORE_DUMPED, change | {"last_reason": why}, "last_at")


def last_failed(migration: Migration, why: str, now: int) -> MigrationStep:
    """The first dump has to do; the work since then is done again."""
    text = f"{why}; it goes on from the first one"
    change = {"stage": Stage.DUMPED, "saved": dict(migration.first), "error": text}
    return MigrationStep(migration, _BEFORE_DUMPED, change | {"failed_at": now}, "failed_at")


def dumped(migration: Migration, saved: Mapping[str, PodCheckpoint], now: int) -> MigrationStep:
    """Every pod is saved: all or nothing, a torn set is never restored."""
    change = {"stage": Stage.DUMPED, "saved": dict(saved), "dumped_at": now}
    return MigrationStep(migration, _BEFORE_DUMPED, change)


def dump_failed(migration: Migration, why: str, now: int) -> MigrationStep:
    """The dump is given up: the application is told, and goes on from an earlier checkpoint."""
    change = {
        "stage": Stage.DUMPING,
        "action": CheckpointAction.SIGNAL,
        "error": why,
        "failed_at": now,
    }
    return MigrationStep(migration, _BEFORE_DUMPED, change, "failed_at")


def stopping(migration: Migration, now: int) -> MigrationStep:
    return MigrationStep(migration, _BEFORE_STOP, {"stopping_at": now}, "stopping_at")


def fenced(migration: Migration, now: int) -> MigrationStep:
    """The source is proven gone."""
    return MigrationStep(migration, _BEFORE_STOP, {"stage": Stage.FENCED, "fenced_at": now})


def restoring(migration: Migration, checkpoint: str, now: int) -> MigrationStep:
    change = {"stage": Stage.RESTORING, "checkpoint": checkpoint, "restoring_at": now}
    return MigrationStep(migration, (*_BEFORE_STOP, Stage.FENCED), change)


def running(migration: Migration, now: int, told: Mapping[str, Any]) -> MigrationStep:
    """The next generation runs: the move is over. `told`: more numbers for its account."""
    stages = (*_BEFORE_STOP, Stage.FENCED, Stage.RESTORING)
    numbers = {**migration.numbers, **told}
    change = {"stage": Stage.RUNNING, "running_at": now, "numbers": numbers}
    return MigrationStep(migration, stages, change)


def called_off(migration: Migration, why: str, now: int) -> MigrationStep:
    """A migration on request whose dump failed: the workload keeps running where it is.

    A notice that sets an earlier deadline meanwhile wins: then the machine does go away.
    """
    change = {"stage": Stage.LOST, "error": why, "failed_at": now, "called_off": True}
    return MigrationStep(
        migration, _BEFORE_DUMPED, change, once="stopping_at", unchanged="deadline"
    )


def abandoned(migration: Migration, why: str) -> MigrationStep:
    """It ended otherwise: cancelled, finished by itself, or back in its queue."""
    stages = (*_BEFORE_STOP, Stage.FENCED, Stage.RESTORING)
    return MigrationStep(migration, stages, {"stage": Stage.LOST, "error": why})
