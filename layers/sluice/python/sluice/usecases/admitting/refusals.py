"""The records of submissions: as they begin, and with what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sluice.core.intake.submission import Accepted, Rejected
from sluice.core.lifecycle.record import State, Workload
from sluice.core.lifecycle.record_entries import FieldError, StatusReason
from sluice.core.values.identity import workload_id
from sluice.core.values.reasons import Reason


def rejected(found: Accepted | Rejected, code: Reason, errors: Sequence[FieldError]) -> Workload:
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return replace(
        record_of(found, State.REJECTED),
        errors=tuple(errors),
        reason=StatusReason(code, f"{first}{more}"),
        finished_at=found.created_at,
    )


def record_of(found: Accepted | Rejected, state: State) -> Workload:
    fields: dict[str, Any] = {
        name: getattr(found, name)
        for name in ("id", "name", "namespace", "queue", "tenant", "digest", "created_at")
    }
    return Workload(state=state, **fields)


def conflicting(workload: Workload, message_id: str) -> Workload:
    """The visible record of a key that was used before with another body."""
    what = (
        f"the idempotency key was used before for another body ({workload.id}); "
        "use a new key, or submit the same body"
    )
    return replace(
        workload,
        id=workload_id("conflict", f"{message_id}{workload.id}"),
        state=State.REJECTED,
        finished_at=workload.created_at,
        errors=(FieldError("metadata.idempotencyKey", what),),
        reason=StatusReason(Reason.KEY_REUSED, what),
    )
