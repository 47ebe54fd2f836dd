"""Take the answers of admission checks that come as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.core.lifecycle import checks
from sluice.core.lifecycle.happenings import Happening
from sluice.core.values import strict_json
from sluice.usecases.callers import authority_of_source
from sluice.usecases.request_errors import ForbiddenError, InvalidError, RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.ports import Catalog, Clock, Timeline, Workloads
    from sluice.usecases.callers import Authority
    from sluice.usecases.steering.checks import Answer

DETAIL_TYPE = "Admission Check Answered"
FIELDS = ("token", "state", "message")


@dataclass(frozen=True, kw_only=True)
class AnswerByEvent:
    """Take an answer from the queue `answers`; a refusal goes to the timeline.

    Only the function `answer` reads that queue, and the api never takes messages: whoever may
    invoke the api directly cannot forge an event.
    """

    answer: Answer
    catalog: Catalog
    workloads: Workloads
    timeline: Timeline
    clock: Clock

    def take(self, body: str, *, account: str) -> str:
        """An answer as a message; "", or why it is refused for good. Faults of ours are raised."""
        try:
            self(strict_json.parse(body), account=account)
        except (RequestError, ValueError) as refused:
            return str(refused)
        return ""

    def __call__(self, envelope: Any, *, account: str) -> None:
        """Raises RequestError for an answer that is not taken, which is for the log then."""
        source, event, said = _read(envelope, account)
        caller = authority_of_source(source, self.catalog.snapshot())
        workload, check = checks.question(said["token"])
        try:
            self.answer(caller, workload, check, **said, event=event)
        except RequestError as refused:
            self._tell(caller, workload, check, f"{said['state']} of {source}: {refused.message}")
            raise

    def _tell(self, caller: Authority, workload_id: str, check: str, why: str) -> None:
        """Only of those who may answer: others have no business in somebody's timeline."""
        workload = self.workloads.get(workload_id)
        if workload is not None and check in workload.checks and caller.may_answer(check):
            message = f"an answer to admission check {check} was not taken: {why}"
            what = f"AdmissionCheckNotTaken:{check}"
            self.timeline.append([Happening(workload, self.clock.now(), what, message)])


def _read(envelope: Any, account: str) -> tuple[str, str, dict[str, str]]:
    """Source, id and content of an event of our account. Raises RequestError."""
    if not isinstance(envelope, dict) or envelope.get("detail-type") != DETAIL_TYPE:
        raise InvalidError(f"is no event of type {DETAIL_TYPE}")
    if envelope.get("account") != account:
        raise ForbiddenError("the event is of another account")
    detail = _opened(envelope.get("detail"))
    said = {name: detail.get(name, "") for name in FIELDS}
    wrong = [name for name, value in said.items() if not isinstance(value, str)]
    wrong += [name for name in ("token", "state") if not said[name]]
    if wrong:
        raise InvalidError(f"the detail needs texts: token, state, message; look at {wrong[0]}")
    return str(envelope.get("source", "")), str(envelope.get("id", "")), said


def _opened(detail: Any) -> Mapping[str, Any]:
    """The detail, or the data of a CloudEvent in it. Raises InvalidError."""
    if isinstance(detail, dict) and "specversion" in detail:
        detail = detail.get("data")
    if not isinstance(detail, dict):
        raise InvalidError("the event has no detail")
    return detail
