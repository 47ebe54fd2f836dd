"""Step Functions tasks that wait for a workload: their tokens, and what they are told at its end.

A task token is a secret: whoever holds it can end the task. So it is taken out of a document before
anything of that is stored, and lies where only the function `complete` can read it.
Source: API_SendTaskSuccess and API_SendTaskFailure of AWS Step Functions, for every limit here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.core.lifecycle.record import phase
from sluice.core.lifecycle.record_entries import StatusReason
from sluice.core.values.plain import to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.lifecycle.record import Workload

WITHHELD: Final = "(kept apart)"
MAX_TOKEN: Final = 2_048  # characters
MAX_OUTPUT: Final = 262_144  # bytes
MAX_ERROR: Final = 256  # characters
MAX_CAUSE: Final = 32_768  # characters
LOST_MS: Final = 3_600_000  # a submission's message has been tried for a quarter of an hour by then
_WRITTEN: Final = re.compile(rf'"taskToken"\s*:\s*"([^"\\]{{1,{MAX_TOKEN}}})"')


@dataclass(frozen=True, slots=True)
class Success:
    """What a task returns: JSON."""

    output: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What a task fails with: `error` for Retry and Catch, `cause` as JSON."""

    error: str
    cause: str


Answer = Success | Failure


def token_of(body: Mapping[str, Any]) -> str:
    """The task token in a document, or "" without a usable one."""
    spec = body.get("spec")
    completion = spec.get("completion") if isinstance(spec, dict) else None
    token = completion.get("taskToken") if isinstance(completion, dict) else None
    return token if isinstance(token, str) and 0 < len(token) <= MAX_TOKEN else ""


def withheld(body: dict[str, Any]) -> dict[str, Any]:
    """The document without its token: what is stored, and what its digest is about."""
    if not token_of(body):
        return body
    completion = body["spec"]["completion"] | {"taskToken": WITHHELD}
    return body | {"spec": body["spec"] | {"completion": completion}}


def token_in(text: str | bytes) -> str:
    """The first token in a text that is no document, by its looks; "" if there is none."""
    found = _WRITTEN.search(text if isinstance(text, str) else text.decode(errors="replace"))
    return found[1] if found else ""


def answer(workload: Workload) -> Answer:
    """What those are told who wait for a workload that has ended."""
    told = {"id": workload.id, "name": workload.name, "queue": workload.queue}
    told["phase"] = phase(workload)
    codes, counts = workload.result.exit_codes, workload.result.exit_code_counts
    if not workload.result.succeeded:
        reason = workload.reason or StatusReason(message=workload.result.message)
        errors = [to_plain(each) for each in workload.errors]
        return failure(reason, told, exit_codes=codes, errors=errors)
    indexes = workload.result.indexes
    output = {
        **told,
        "results": results(workload),
        **({"indexes": indexes} if indexes else {}),
        "startedAt": int(workload.started_at),
        "finishedAt": int(workload.finished_at),
    }
    if counts:  # of thousands of pods its record keeps no more
        return Success(_json(output | {"exitCodeCounts": counts}))
    whole = _json(output | {"exitCodes": codes})
    # Of thousands of pods it is enough to know how many ended with which code.
    return Success(whole if len(whole.encode()) <= MAX_OUTPUT else _json(output | _counted(codes)))


def failure(
    reason: StatusReason,
    told: Mapping[str, Any],
    *,
    exit_codes: Mapping[str, Any] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Failure:
    """The code of the reason, or the phase where there is none; in the cause what fits of the rest.

    What people need last goes first: exit codes, then errors from the end, then the message's end.
    """
    cause = {**told, "reason": reason.code, "message": reason.message}
    shown = list(errors or ())
    more: dict[str, Any] = {"exitCodes": exit_codes} if exit_codes else {}
    while len(text := _json(cause | _errors(shown, errors) | more)) > MAX_CAUSE:
        if more:
            more = {}
        elif shown:
            shown.pop()
        else:
            cause["message"] = cause["message"][: len(cause["message"]) // 2]
    return Failure((reason.code or told["phase"])[:MAX_ERROR], text)


def results(workload: Workload) -> list[str]:
    """The prefixes of S3 that the workload could write to through its volumes."""
    return [f"s3://{v.bucket}/{v.prefix}" for v in workload.options.volumes if not v.read_only]


def _errors(shown: list[dict[str, str]], errors: list[dict[str, str]] | None) -> dict[str, Any]:
    if not errors:
        return {}
    left = len(errors) - len(shown)
    return {"errors": shown} | ({"moreErrors": left} if left else {})


def _counted(codes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    counts = Counter(str(int(code)) for pod in codes.values() for code in pod.values())
    return {"exitCodeCounts": dict(sorted(counts.items()))}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=int, separators=(",", ":"))
