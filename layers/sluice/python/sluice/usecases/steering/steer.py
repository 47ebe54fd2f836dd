"""Cancel, hold, release, requeue and reprioritize: what users may do to a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import (
    TERMINAL,
    Intent,
    IntentKind,
    State,
    Workload,
    is_migrating,
    phase,
)
from sluice.core.lifecycle.verbs import SteeringVerb, useful_verbs
from sluice.usecases.request_errors import ConflictError, ForbiddenError, InvalidError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.core.lifecycle.record import Change
    from sluice.ports import Catalog, Clock, Kicks, Workloads
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

ATTEMPTS = 8
ON_USER_REQUEST = "CANCELLED:User"
REQUEUED = "HELD:Requeued"


@dataclass(frozen=True, slots=True)
class Decision:
    """A change to make, or None if there is nothing to do; `result` tells people."""

    change: Change | None
    result: str


@dataclass(frozen=True, kw_only=True)
class Steer:
    """Changes are conditional on the record they were decided on; a lost race decides anew."""

    query: Query
    workloads: Workloads
    catalog: Catalog
    kicks: Kicks
    clock: Clock

    def cancel(self, caller: Authority, reference: str, *, reason: str = "") -> Json:
        """Pending: at once; running: stopped first; finished: no effect."""
        message = _said(caller, "cancelled", reason)

        def decide(workload: Workload) -> Decision:
            intent = Intent(IntentKind.CANCEL, ON_USER_REQUEST, message, by=caller.who)
            match workload.state:
                case State.PENDING:
                    change = lifecycle.cancel_pending(workload, message, self.clock.now())
                    return Decision(change, "cancelled")
                case State.ADMITTED | State.DISPATCHED:
                    return Decision(lifecycle.reclaim(workload, intent), "being cancelled")
                case State.RECLAIMING:
                    if workload.intent and workload.intent.kind is IntentKind.CANCEL:
                        return Decision(None, "being cancelled")
                    return Decision(lifecycle.change_intent(workload, intent), "being cancelled")
            return Decision(None, f"had ended: {phase(workload)}")

        return self._until_decided(caller, reference, decide)

    def hold(self, caller: Authority, reference: str, *, on: bool, reason: str = "") -> Json:
        """Take a pending workload out of its queue, or put it back."""
        del reason  # the timeline says who and when; a hold has no message of its own

        def decide(workload: Workload) -> Decision:
            result = "held" if on else "released"
            if workload.state is not State.PENDING:
                able = [
                    v
                    for v in (SteeringVerb.CANCEL, SteeringVerb.REQUEUE)
                    if v in useful_verbs(workload)
                ]
                advice = f"{' or '.join(able)} it" if able else "nothing can be done about it now"
                if workload.state in TERMINAL:
                    advice = "it has ended"
                raise ConflictError(
                    f"workload {workload.id} is {phase(workload)}; only pending ones "
                    f"can be {result}: {advice}"
                )
            if workload.held is on:
                return Decision(None, result)
            return Decision(lifecycle.hold(workload, on=on), result)

        return self._until_decided(caller, reference, decide)

    def requeue(self, caller: Authority, reference: str, *, reason: str = "") -> Json:
        """Stop a running workload and let it queue again; it keeps its identity."""
        message = _said(caller, "requeued", reason)

        def decide(workload: Workload) -> Decision:
            if workload.state in {State.ADMITTED, State.DISPATCHED}:
                intent = Intent(IntentKind.REQUEUE, REQUEUED, message, by=caller.who)
                return Decision(lifecycle.reclaim(workload, intent), "being requeued")
            if workload.state is State.PENDING:
                return Decision(None, "waits already")
            if is_migrating(workload):
                raise ConflictError(
                    f"workload {workload.id} is being moved and keeps its quota",
                    hint="requeue it once it has its new machine, or cancel it",
                )
            if workload.state is State.RECLAIMING:
                return Decision(None, "is being stopped already")
            raise ConflictError(
                f"workload {workload.id} has ended ({phase(workload)})",
                hint="submit the document again, under a new idempotency key",
            )

        return self._until_decided(caller, reference, decide)

    def reprioritize(self, caller: Authority, reference: str, priority: int | str) -> Json:
        """A new priority for a pending workload.

        `priority` is the name of a WorkloadPriorityClass. Numbers are for administrators, and for
        tenants only downwards: otherwise anybody could overtake everybody.
        """
        value = self._priority(priority)

        def decide(workload: Workload) -> Decision:
            if isinstance(priority, int) and value > workload.priority and not caller.admin:
                raise ForbiddenError(
                    f"priority {value} is above the present {workload.priority}",
                    hint="name a WorkloadPriorityClass, or ask an administrator",
                )
            if workload.state is not State.PENDING:
                raise ConflictError(
                    f"workload {workload.id} is {phase(workload)}; priority orders "
                    "pending workloads only"
                )
            if workload.priority == value:
                return Decision(None, f"priority is {value}")
            return Decision(
                lifecycle.reprioritise(workload, value), f"priority {workload.priority} → {value}"
            )

        return self._until_decided(caller, reference, decide)

    def _priority(self, priority: int | str) -> int:
        if isinstance(priority, int):
            if not -(2**31) <= priority < 2**31:
                raise InvalidError("priority must fit 32 bits")
            return priority
        classes = self.catalog.snapshot().of("WorkloadPriorityClass")
        if priority not in classes:
            known = ", ".join(sorted(classes)) or "none"
            raise InvalidError(f"no WorkloadPriorityClass {priority!r}; known: {known}")
        return int(classes[priority]["value"])

    def _until_decided(
        self, caller: Authority, reference: str, decide: Callable[[Workload], Decision]
    ) -> Json:
        """Gathers, decides and applies until no other writer came between."""
        workload = self.query.find(caller, reference)
        for _ in range(ATTEMPTS):
            decision = decide(workload)
            if decision.change is None or self.workloads.apply([decision.change]) == [True]:
                if decision.change is not None:
                    self.kicks.kick([self.query.rooted(workload).root])
                return self.query.workload(caller, workload.id) | {"result": decision.result}
            workload = self.query.find(caller, workload.id)
        raise ConflictError(f"workload {workload.id} keeps changing; try again")


def _said(caller: Authority, what: str, reason: str) -> str:
    return f"{what} by {caller.who}" + (f": {reason}" if reason else "")
