"""When a workload whose pods are not all ready goes back to its queue, and for how long. Pure.

Source: Kueue's waitForPodsReady (core.config.pods_ready), docs/decisions/0032.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.pods_ready import PodsReadyRules, RequeuingTimestamp
from sluice.core.lifecycle.record import Intent, IntentKind, Workload
from sluice.core.lifecycle.run import RunEnd
from sluice.core.values.backoff import backoff_ms, jitter_ms
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from sluice.core.lifecycle.stuck_pods import Stuck

Document = Mapping[str, Any]

TIMEOUT: Final = "PodsReadyTimeout"
"""`why` of a run that ended so; Kueue's word for such an eviction."""
LEAST_MS: Final = 300_000
"""A start that goes on elsewhere has at least this long there: a machine has to be bought."""
_NAMED: Final = 3


def deadline(workload: Workload, ready: PodsReadyRules) -> int:
    """Until when all pods have to be ready (epoch ms).

    A drain of a workload that had not started begins nothing anew: the time that was spent starting
    before counts, that of the move does not, and what is left is long enough for another machine.
    """
    spent = 0
    for run in reversed(workload.runs):
        if run.outcome != IntentKind.MIGRATE or run.started_at or not run.dispatched_at:
            break
        spent += max(0, (run.interrupted_at or run.ended_at) - run.dispatched_at)
    left = max(ready.timeout_ms - spent, min(ready.timeout_ms, LEAST_MS))
    return workload.dispatched_at + left


def timeouts_in_row(workload: Workload) -> int:
    """How often it was late, since it last ran well or was let into its queue again.

    Moves, preemptions and requests before a start say nothing about its machines.
    """
    late = 0
    for run in reversed(workload.runs):
        if run.outcome == IntentKind.DEACTIVATE:
            break
        if run.why == TIMEOUT:
            late += 1
        elif run.started_at:
            break
    return late


def not_ready_in_time(pods: Sequence[Document], ready: PodsReadyRules) -> str:
    late = f"not all pods were ready within {ready.timeout_ms // 1000} s"
    without = [str(p["metadata"]["name"]) for p in pods if not p["spec"].get("nodeName")]
    return f"{late}; {_names(without)} had no machine" if without else late


def not_recovered(pods: Sequence[Document], now: int, ready: PodsReadyRules) -> str:
    """Why a workload that ran has waited long enough for a pod that it lost; empty if not."""
    if ready.recovery_timeout_ms is None:
        return ""
    since = {str(pod["metadata"]["name"]): at for pod in pods if (at := _unready_since(pod))}
    late = sorted(name for name, at in since.items() if now - at > ready.recovery_timeout_ms)
    seconds = ready.recovery_timeout_ms // 1000
    return f"{_names(late)} was not ready again within {seconds} s" if late else ""


def too_late(
    workload: Workload, now: int, ready: PodsReadyRules, late: str, why: Stuck | None = None
) -> Intent:
    """Back to its queue with back-off, or held there once it was late too often."""
    before = timeouts_in_row(workload)
    code = Reason.WAITING_FOR_NODE if why is None else why.code
    said = late if why is None else f"{why}; {late}"
    evicted = ready.timestamp is RequeuingTimestamp.EVICTION
    account = RunEnd(why=TIMEOUT, ordered_at=now if evicted else 0)
    most = ready.backoff_limit_count
    if most is not None and before >= most:
        times = f"{before + 1} times in a row" if before else "the first time"
        message = f"{said}; so {times}, which ends its tries (backoffLimitCount {most})"
        return Intent(IntentKind.DEACTIVATE, code, message, account=account)
    wait = backoff_ms(before, ready.backoff_base_ms, ready.backoff_max_ms)
    wait += jitter_ms(wait, f"{workload.id}#{workload.generation}")
    message = f"{said}; back in the queue, next try in {wait // 1000} s"
    return Intent(IntentKind.REQUEUE, code, message, not_before=now + wait, account=account)


def _unready_since(pod: Document) -> int:
    """Since when a pod that has not ended is not ready (epoch ms); 0 if it is, or has ended."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return 0
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready":
            if condition["status"] == "True":
                return 0
            if at := condition.get("lastTransitionTime"):
                return _epoch_ms(at)
    made = pod["metadata"].get("creationTimestamp")
    return _epoch_ms(made) if made else 0


def _names(pods: Sequence[str]) -> str:
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return f"{', '.join(pods[:_NAMED])}{more}"


def _epoch_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
