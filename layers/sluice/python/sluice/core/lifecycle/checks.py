"""Admission checks: who answers them, and what the answers do to a workload that has its quota.

Two phases, as in Kueue: quota is reserved first, then the checks are asked, and only then a Job is
made. Ready from all starts it; one Retry gives the quota back for a while, and one Rejected until
somebody releases the workload again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.config.model import BUDGET_CHECK, CheckState, StopPolicy
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.core.scheduling.flavor_assigner import required_checks
from sluice.core.values.backoff import backoff_ms
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sluice.core.config import model
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.lifecycle.record import Change, Workload


def asked(
    queue: model.ClusterQueue,
    assignment: model.Assignment,
    checks: Mapping[str, model.AdmissionCheck],
) -> tuple[str, ...]:
    """The checks that somebody has to answer before this assignment starts."""
    names = required_checks(queue, assignment)
    return tuple(name for name in names if checks[name].controller != BUDGET_CHECK)


def states(workload: Workload) -> dict[str, CheckState]:
    """The newest answer of each check to this generation."""
    found = dict.fromkeys(workload.checks, CheckState.PENDING)
    for answer in workload.answers:
        if answer.generation == workload.generation and answer.check in found:
            found[answer.check] = CheckState(answer.state)
    return found


def token(workload: Workload, check: str) -> str:
    """Names one question, so that an answer to an older one is not taken for it."""
    return f"{workload.id}.{workload.generation}.{check}"


def question(token: str) -> tuple[str, str]:
    """Workload and check that a token names; both may be nonsense."""
    workload, _, rest = token.partition(".")
    return workload, rest.partition(".")[2]


def waits_for(workload: Workload) -> str:
    """For people: the checks that have not said yes."""
    left = [name for name, state in states(workload).items() if state is not CheckState.READY]
    return f"has its quota; waits for admission check {', '.join(left)}"


def steps(gated: Iterable[Workload], queues: QueueCatalog, now: int) -> Iterator[Change]:
    """What the answers do, as far as they decide; of checks that the queue still has.

    Where a queue is stopped what only holds quota gives it back, as in Kueue.
    """
    for workload in gated:
        queue = queues.cluster_queues.get(workload.cq)
        if workload.state is not State.ADMITTED or not workload.gated or queue is None:
            continue
        if (stopped := _stopped(workload, queue, queues)) is not None:
            message = f"{stopped} is stopped; it had quota, and waited for its admission checks"
            yield lifecycle.reclaim(
                workload, Intent(IntentKind.PREEMPT, Reason.QUEUE_CORDONED, message)
            )
            continue
        found = {n: said for n, said in states(workload).items() if n in queue.admission_checks}
        if (name := _first(found, CheckState.REJECTED)) is not None:
            message = f"admission check {name} rejected it{_said(workload, name)}"
            intent = Intent(IntentKind.DEACTIVATE, Reason.ADMISSION_CHECK, message)
            yield lifecycle.reclaim(workload, intent)
        elif (name := _first(found, CheckState.RETRY)) is not None:
            wait = backoff_ms(workload.requeues)
            message = f"admission check {name} asks to try again{_said(workload, name)}"
            intent = Intent(
                IntentKind.REQUEUE, Reason.ADMISSION_CHECK, message, not_before=now + wait
            )
            yield lifecycle.reclaim(workload, intent)
        elif set(found.values()) <= {CheckState.READY}:
            yield lifecycle.pass_checks(workload)


def _stopped(workload: Workload, queue: model.ClusterQueue, queues: QueueCatalog) -> str | None:
    local = queues.local_queues.get(workload.queue)
    if queue.stop_policy is not StopPolicy.NONE:
        return f"ClusterQueue {queue.name}"
    if local is not None and local.stop_policy is not StopPolicy.NONE:
        return f"LocalQueue {local.key}"
    return None


def _first(found: Mapping[str, CheckState], state: CheckState) -> str | None:
    return next((name for name, each in found.items() if each is state), None)


def _said(workload: Workload, name: str) -> str:
    said = [a.message for a in workload.answers if a.check == name and a.message]
    return f": {said[-1]}" if said else ""
