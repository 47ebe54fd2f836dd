"""What the reader of `why` can do: one sentence, and commands that work in the present state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sluice.core.config.model import CheckState
from sluice.core.lifecycle import checks
from sluice.core.lifecycle.record import TERMINAL, State, Workload, phase
from sluice.core.lifecycle.verbs import SteeringVerb, useful_verbs
from sluice.core.values.reasons import Action

if TYPE_CHECKING:
    from sluice.usecases.callers import Authority
    from sluice.usecases.views import Json

_ACTIONS = {
    Action.CHANGE_REQUEST: "change the request: it cannot run as it is",
    Action.RELEASE: "`sluice release` lets it queue again",
    Action.ASK_ADMIN: "ask your administrator",
    Action.PLATFORM_FAULT: "the platform has a fault; report it to its operators",
}
_PURPOSES: Mapping[SteeringVerb, str] = {
    SteeringVerb.CANCEL: "ends it",
    SteeringVerb.RELEASE: "lets it queue again",
    SteeringVerb.REQUEUE: "gives its quota back and lets it queue again",
}


def what_to_do(workload: Workload, reason: Json | None) -> str:
    """One sentence for people; empty where there is nothing to say."""
    if reason is None:
        return ""
    action = Action(reason["action"])
    if workload.state in TERMINAL:
        return _ACTIONS[action] if action not in {Action.WAIT, Action.RELEASE} else ""
    if workload.gated:
        return "somebody has to answer: it starts once every check has said ready"
    if workload.state is State.PENDING and workload.held:
        return _ACTIONS[Action.RELEASE]
    if action not in {Action.WAIT, Action.RELEASE}:
        return _ACTIONS[action]
    if workload.state is not State.PENDING:
        return "nothing to do: it goes on by itself as soon as it can"
    if workload.blocked:
        return "nothing to do: it enters its queue once what it waits for has ended"
    return "nothing to do: it will run when its turn comes"


def commands(caller: Authority, workload: Workload, reason: Json | None) -> Iterator[Json]:
    """`{command, purpose}`, most useful first; all are accepted while the state is the same."""
    yield from _about_checks(caller, workload)
    useful = useful_verbs(workload)
    if SteeringVerb.RELEASE in useful:
        yield _command(workload, SteeringVerb.RELEASE)
    yield from _to_look(workload, reason)
    if workload.state is State.ADMITTED or phase(workload) == "STARTING":
        yield _command(workload, SteeringVerb.REQUEUE)
    if SteeringVerb.CANCEL in useful and phase(workload) != "RUNNING":
        yield _command(workload, SteeringVerb.CANCEL)


def _about_checks(caller: Authority, workload: Workload) -> Iterator[Json]:
    if SteeringVerb.CHECK not in useful_verbs(workload):
        return
    for name, state in checks.states(workload).items():
        if state is not CheckState.READY:
            who = "" if caller.may_answer(name) else ", if somebody gives it who may answer it"
            yield {
                "command": f"sluice check {workload.id} {name} ready",
                "purpose": f"answers admission check {name}{who}",
            }


def _to_look(workload: Workload, reason: Json | None) -> Iterator[Json]:
    """Commands that show more and change nothing."""
    code = reason["code"] if reason else ""
    if workload.blocked:
        for each in workload.options.depends_on:
            if each.id:
                purpose = f"tells how far {each.name or 'it'} is"
                yield {"command": f"sluice why {each.id}", "purpose": purpose}
        return
    if code.startswith("CAPACITY:"):
        yield {"command": "sluice capacity", "purpose": "shows which machines can be had"}
    if workload.state is State.PENDING:
        if not workload.held and code.startswith(("QUOTA:", "PRIORITY:", "FAIRSHARE:")):
            yield {"command": "sluice queues", "purpose": "shows the use of every queue"}
        return
    now = phase(workload)
    if now in {"RUNNING", "SUCCEEDED", "FAILED"}:
        yield {"command": f"sluice logs {workload.id}", "purpose": "shows what it printed"}
    if now == "REJECTED":
        yield {"command": f"sluice describe {workload.id}", "purpose": "shows every mistake"}
    else:
        yield {"command": f"sluice events {workload.id}", "purpose": "tells how far it is"}


def _command(workload: Workload, verb: SteeringVerb) -> Json:
    return {"command": f"sluice {verb} {workload.id}", "purpose": _PURPOSES[verb]}


def hint_for_arrays(workload: Workload) -> str:
    """What an array whose first failed index ended all of it can do next time."""
    result = workload.result
    if not result.indexes or result.reason != "BackoffLimitExceeded":
        return ""
    return (
        "one failure ended all of its indexes; with backoffLimitPerIndex (and maxFailedIndexes)"
        " in the Job's spec each index fails for itself"
    )
