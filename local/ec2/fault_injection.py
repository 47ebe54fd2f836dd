"""The Fault Injection Service on the embedded EC2: a started experiment takes spot instances away.

moto keeps templates and experiments; here they happen. Known is the one action of Sluice's drills.
Source: AWS's documentation of FIS (actions reference, targets, states of an experiment): targets
are looked for after the start, so tags have to last until then; the recommendation to rebalance
goes out at once, the warning two minutes before the end; five instances are the most for a target.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.fis.models import Experiment, ExperimentTemplate, FISBackend

from local.ec2.market import NOTICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from moto.ec2.models.instances import Instance

    from local.ec2.lifecycle import Ec2

ACTION, ROLE_OF_TARGET = "aws:ec2:send-spot-instance-interruptions", "SpotInstances"
RESOURCE = "aws:ec2:spot-instance"
DURATION = re.compile(r"PT(?:(\d+)M)?(?:(\d+)S)?")
SELECTION = re.compile(r"ALL|COUNT\((\d+)\)")
MOST_INSTANCES, LONGEST_SECONDS = 5, 900
RESOLVE_SECONDS = 1.0
# What filters may ask for, by the paths of DescribeInstances.
FILTERED: Mapping[str, Callable[[Instance], str | None]] = {
    "State.Name": lambda one: one.state,
    "InstanceType": lambda one: one.instance_type,
    "Placement.AvailabilityZone": lambda one: one.availability_zone,
}


class Templates(dict[str, ExperimentTemplate]):
    """A backend's templates, in a file as well: CloudFormation keeps their ids over a restart."""

    def __init__(self, file: Path) -> None:
        known = pickle.loads(file.read_bytes()) if file.exists() else {}  # noqa: S301 - our own file
        super().__init__(known)
        self._file = file

    def __setitem__(self, key: str, template: ExperimentTemplate) -> None:
        super().__setitem__(key, template)
        self._write()

    def pop(self, key: str) -> ExperimentTemplate:  # type: ignore[override]  # as moto calls it
        found = super().pop(key)
        self._write()
        return found

    def _write(self) -> None:
        partial = self._file.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(dict(self)))
        partial.rename(self._file)


class ExperimentFailedError(Exception):
    """Why, in the words of its state's reason."""


def make_experiments_happen(ec2: Ec2) -> None:
    """Let experiments do what they say; moto moves them on whenever somebody looks."""
    start = FISBackend.start_experiment

    def started(self: FISBackend, *arguments: Any, **named: Any) -> Any:
        before = set(self.experiments)
        answer = start(self, *arguments, **named)
        if answer["id"] not in before:  # else a repetition, by its client token
            experiment = self.experiments[answer["id"]]
            ec2.later(RESOLVE_SECONDS, lambda: carry_out(ec2, experiment))
        return answer

    replacements: dict[str, tuple[type, Any]] = {
        "start_experiment": (FISBackend, started),
        "advance": (Experiment, lambda _self: None),
    }
    for name, (owner, replacement) in replacements.items():
        setattr(owner, name, replacement)


def carry_out(ec2: Ec2, experiment: Experiment) -> None:
    """From its targets to its end, or to the reason why there is none."""
    if experiment.status == "stopping":
        experiment.status = "stopped"
        return
    try:
        doomed = [
            (instance, seconds_of(action))
            for action in experiment.actions.values()
            for instance in targets_of(ec2, experiment, action)
        ]
    except ExperimentFailedError as error:
        experiment.STATUS_REASONS = Experiment.STATUS_REASONS | {"failed": str(error)}  # type: ignore[misc]  # moto has one text for each state
        experiment.status = "failed"
        return
    experiment.status = "running"
    for instance, seconds in doomed:
        ec2.interrupt(instance, seconds - NOTICE_SECONDS)
    longest = max(seconds for _, seconds in doomed)
    ec2.later(longest * ec2.scale, lambda: end(experiment))


def end(experiment: Experiment) -> None:
    experiment.status = "stopped" if experiment.status == "stopping" else "completed"


def seconds_of(action: Mapping[str, Any]) -> float:
    """From the action's begin to the end of its instances. Raises ExperimentFailedError."""
    given = action.get("parameters", {}).get("durationBeforeInterruption", "")
    found = DURATION.fullmatch(given)
    seconds = int(found[1] or 0) * 60 + int(found[2] or 0) if found else 0
    if not NOTICE_SECONDS <= seconds <= LONGEST_SECONDS:
        raise ExperimentFailedError(f"durationBeforeInterruption {given!r} is not PT2M to PT15M")
    return seconds


def targets_of(ec2: Ec2, experiment: Experiment, action: Mapping[str, Any]) -> list[Instance]:
    """The instances of one action. Raises ExperimentFailedError."""
    if action["actionId"] != ACTION:
        raise ExperimentFailedError(f"the embedded FIS knows only {ACTION}")
    name = action.get("targets", {}).get(ROLE_OF_TARGET, "")
    target = experiment.targets.get(name)
    if target is None or target["resourceType"] != RESOURCE:
        raise ExperimentFailedError(f"target {ROLE_OF_TARGET} must be of {RESOURCE}")
    selection = SELECTION.fullmatch(target["selectionMode"])
    if selection is None:
        raise ExperimentFailedError(f"selection mode {target['selectionMode']} is not known here")
    found = [one for one in ec2.instances() if one.lifecycle == "spot" and matches(one, target)]
    chosen = found[: int(selection[1])] if selection[1] else found
    if not chosen:
        raise ExperimentFailedError(f"Target resolution returned empty set for target {name}")
    if len(chosen) > MOST_INSTANCES:
        raise ExperimentFailedError(f"target {name}: more than {MOST_INSTANCES} instances")
    return chosen


def matches(instance: Instance, target: Mapping[str, Any]) -> bool:
    """By name, or by all tags; and by all filters. Raises ExperimentFailedError."""
    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
    arns = target.get("resourceArns") or ()
    named = any(arn.endswith(f"/{instance.id}") for arn in arns)
    if not named and (arns or not target.get("resourceTags", {}).items() <= tags.items()):
        return False
    for each in target.get("filters") or ():
        if each["path"] not in FILTERED:
            raise ExperimentFailedError(f"filter {each['path']} is not known here")
        if FILTERED[each["path"]](instance) not in each["values"]:
            return False
    return True
