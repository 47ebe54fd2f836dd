"""What users may ask about moves and checkpoints: save, move, restore, list."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sluice.core.checkpoints.driver import Connections, WorkKept
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle.record import State, Workload, phase
from sluice.core.migrations import checkpointing
from sluice.core.migrations.interruption import (
    CHECKPOINT_REQUESTED,
    MIGRATION_REQUESTED,
    request_event,
)
from sluice.core.migrations.periodic import can_be_ordered
from sluice.usecases.request_errors import ConflictError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sluice.core.migrations.checkpointing import Checkpoint
    from sluice.ports import Archives, Clock, Interruptions, Migrations
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query


@dataclass(frozen=True, kw_only=True)
class MigrationRequests:
    """Wishes go the way of EC2's notices, so that one function alone begins moves."""

    query: Query
    migrations: Migrations
    archives: Archives
    interruptions: Interruptions
    clock: Clock

    def checkpoints(self, caller: Authority, reference: str) -> Json:
        """Newest first, with the one from which the next run would start."""
        workload = self.query.find(caller, reference)
        kept = checkpointing.retained(
            self.migrations.checkpoints(workload.id), checkpointing.LISTED
        )
        sources = {each.source: each for each in kept}
        items = [_view(each) | {"from": _origin(each, sources)} for each in kept]
        found: Json = {"items": items, "restoresFrom": workload.restore_from}
        if driver_of(workload.options).dumps:
            found["canBeSaved"] = self.can_be_saved(workload, kept)
            if driver_of(workload.options).closes_connections:
                machines = self.query.machines(caller, workload.id)["items"]
                found["connections"] = _connections(workload, machines)
        return found

    def can_be_saved(self, workload: Workload, kept: Sequence[Checkpoint]) -> Json:
        """What the last try to save it showed, periodic or on request; at first a trial.

        `answer` is `yes` with `bytes` and `tookMs`, `no` with `why`, or `unknown`; `at` epoch ms.
        """
        if refused := self.migrations.refused(workload.id):
            return {"answer": "no", "why": refused.why, "at": refused.at}
        if not kept:
            return {"answer": "unknown"}
        last = max(kept, key=lambda each: each.at)
        return {"answer": "yes", "bytes": last.size, "tookMs": last.took_ms, "at": last.at}

    def checkpoint(self, caller: Authority, reference: str) -> Json:
        """Save a running workload, which runs on."""
        workload = self.running(caller, reference)
        if driver_of(workload.options).keeps is WorkKept.NOTHING:
            raise ConflictError(
                f"workload {workload.id} keeps no checkpoints",
                hint="submit it with `checkpoint: {mode: application}` or `{mode: kubelet}`",
            )
        if not can_be_ordered(workload.options):
            raise ConflictError(
                f"workload {workload.id} names no signal by which it could be told to save itself",
                hint="submit it with `checkpoint: {mode: application, signal: SIGUSR1}`",
            )
        return self.ask(caller, workload, CHECKPOINT_REQUESTED, "a checkpoint is ordered")

    def migrate(self, caller: Authority, reference: str) -> Json:
        """Save a running workload and start it again from there, with its quota."""
        workload = self.running(caller, reference)
        return self.ask(caller, workload, MIGRATION_REQUESTED, "is being moved")

    def restore(
        self, caller: Authority, reference: str, *, checkpoint: str = "", dry_run: bool = False
    ) -> Json:
        """Start a running workload again from one of its checkpoints, by default the newest."""
        workload = self.running(caller, reference)
        kept = checkpointing.retained(
            self.migrations.checkpoints(workload.id), checkpointing.LISTED
        )
        chosen = [each for each in kept if checkpoint in ("", each.uri)]
        if not chosen:
            which = f"no checkpoint {checkpoint}" if checkpoint else "no checkpoint"
            hint = f"`sluice checkpoints {workload.id}` lists those there are"
            if not kept:
                hint = f"`sluice checkpoint {workload.id}` saves it now, if it can be saved; a run "
                hint += f"from the beginning is `sluice requeue {workload.id}`"
            raise ConflictError(f"workload {workload.id} has {which}", hint=hint)
        found = self.archived(chosen[0])
        if dry_run:
            return self.query.workload(caller, workload.id) | {"result": f"would start {found}"}
        request_event = f"starts again from {chosen[0].uri}"
        return self.ask(
            caller, workload, MIGRATION_REQUESTED, request_event, checkpoint=chosen[0].source
        )

    def archived(self, checkpoint: Checkpoint) -> str:
        """What is there to start from, in words. Raises ConflictError if it is not whole."""
        if not checkpoint.uri.startswith("s3://"):
            return f"again from {checkpoint.source}"
        found = self.archives.look(checkpoint)
        if found is None or (checkpoint.size and found.size != checkpoint.size):
            state = "gone" if found is None else f"{found.size} of {checkpoint.size} bytes"
            raise ConflictError(
                f"the archive {checkpoint.uri} is {state}",
                hint=f"choose another one: `sluice checkpoints {checkpoint.workload}`",
            )
        how = found.encryption or "encryption unknown"
        parts = f" in {len(checkpoint.parts)} parts" if checkpoint.parts else ""
        return f"again from {checkpoint.uri}: {found.size / 1e6:.1f} MB{parts}, {how}"

    def running(self, caller: Authority, reference: str) -> Workload:
        workload = self.query.find(caller, reference)
        if workload.state is not State.DISPATCHED:
            raise ConflictError(
                f"workload {workload.id} is {phase(workload)}; only running ones can be"
                " saved or moved"
            )
        return workload

    def ask(
        self, caller: Authority, workload: Workload, what: str, result: str, **detail: str
    ) -> Json:
        about = {"workload": workload.id, "by": caller.who, **detail}
        self.interruptions.send(request_event(what, self.clock.now(), about))
        return self.query.workload(caller, workload.id) | {"result": result}


def _connections(workload: Workload, machines: Sequence[Json]) -> str:
    """What a checkpoint does with open TCP connections, in words."""
    policy = workload.options.checkpoint
    if policy and policy.connections is Connections.REFUSE:
        return "it is not saved while it has any, as it asks"
    known = [row for row in machines if row.get("instance")]
    unable = [row["node"] for row in known if row.get("connections") != Connections.CLOSE]
    if unable:
        return f"it cannot be saved while it has any: {unable[0]} does not close them"
    return "closed by a checkpoint"


def _origin(checkpoint: Checkpoint, known: Mapping[str, Checkpoint]) -> str:
    """Where its line came from: the beginning, or a checkpoint by its time or at least address."""
    if not checkpoint.parent:
        return "the beginning"
    parent = known.get(checkpoint.parent)
    if parent is None:
        return checkpoint.parent
    at = datetime.fromtimestamp(parent.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{at}, generation {parent.generation}"


def _view(checkpoint: Checkpoint) -> Json:
    """A checkpoint as the api shows it; parts and failures only where there are any."""
    row = asdict(checkpoint)
    del row["workload"]
    for name in ("parts", "failed", "failure"):
        if not row[name]:
            del row[name]
    return row
