"""Take the answers of admission checks, and let workloads start, wait or stop by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.config.model import CheckState
from sluice.core.lifecycle import checks
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import phase
from sluice.usecases.request_errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.ports import Clock, Kicks, Workloads
    from sluice.usecases.callers import Authority

ANSWERS = (CheckState.READY, CheckState.RETRY, CheckState.REJECTED)
MOST_TEXT = 500
MOST_ANSWERS = 100  # of all checks to one generation


@dataclass(frozen=True, kw_only=True)
class Answer:
    workloads: Workloads
    kicks: Kicks
    clock: Clock

    def __call__(
        self,
        caller: Authority,
        workload_id: str,
        check: str,
        *,
        state: str,
        message: str = "",
        token: str = "",
        event: str = "",
    ) -> Json:
        """Record what a check says. Raises RequestError for who may not, and for what is over.

        A copy of an `event` that was heard already changes nothing.
        """
        if not caller.may_answer(check):
            raise ForbiddenError(
                f"tenant {caller.tenant} does not answer admission check {check}",
                hint="an administrator lists it in the Tenant's spec.checks",
            )
        if state not in set(ANSWERS):
            known = ", ".join(ANSWERS)
            raise InvalidError(f"state {state!r:.40} is not one of {known}")
        workload = self.workloads.get(workload_id)
        if workload is None or check not in workload.checks:
            raise NotFoundError(f"no workload {workload_id} waits for admission check {check}")
        if event and any(said.event == event for said in workload.answers):
            return {"id": workload.id, "check": check, "state": state}
        if token and token != checks.token(workload, check):
            present = checks.token(workload, check)
            raise ConflictError(f"{token!r:.80} is another question than the present {present}")
        if len(workload.answers) >= MOST_ANSWERS:
            raise ConflictError(f"{MOST_ANSWERS} answers were given already; requeue the workload")
        text, now = message[:MOST_TEXT], self.clock.now()
        said = lifecycle.answer(workload, check, state, text, now, event)
        if self.workloads.apply([said]) != [True]:
            raise ConflictError(
                f"workload {workload.id} does not wait for its checks: it is {phase(workload)}"
            )
        self.kicks.kick([workload.root])
        return {"id": workload.id, "check": check, "state": state}
