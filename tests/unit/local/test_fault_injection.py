"""What an experiment of the embedded FIS does to instances, and why it fails."""

from types import SimpleNamespace

import pytest
from moto.fis.models import Experiment, FISBackend

from local.ec2 import fault_injection

TARGET = {
    "resourceType": "aws:ec2:spot-instance",
    "selectionMode": "COUNT(1)",
    "resourceTags": {"drill": "yes"},
    "filters": [{"path": "State.Name", "values": ["running"]}],
}
ACTION = {
    "actionId": "aws:ec2:send-spot-instance-interruptions",
    "parameters": {"durationBeforeInterruption": "PT2M"},
    "targets": {"SpotInstances": "machine"},
}


def an_instance(number, *, lifecycle="spot", state="running", tag="yes"):
    return SimpleNamespace(
        id=f"i-{number}", lifecycle=lifecycle, state=state, instance_type="m5.large",
        availability_zone="us-east-1a", get_tags=lambda: [{"key": "drill", "value": tag}],
    )  # fmt: skip


class Machines:
    """The embedded EC2, in which time passes at once, or when it is told to."""

    scale = 1.0

    def __init__(self, *instances):
        self.found, self.interrupted, self.agenda = instances, [], []

    def instances(self):
        return list(self.found)

    def interrupt(self, instance, rebalance_seconds):
        self.interrupted.append((instance.id, rebalance_seconds))

    def later(self, seconds, action):
        self.agenda.append((seconds, action))

    def pass_time(self):
        seconds, action = self.agenda.pop(0)
        action()
        return seconds


@pytest.fixture
def fis(monkeypatch):
    """A FIS of its own; what `make_experiments_happen` replaces comes back afterwards."""
    monkeypatch.setattr(FISBackend, "start_experiment", FISBackend.start_experiment)
    monkeypatch.setattr(Experiment, "advance", Experiment.advance)
    return FISBackend("us-east-1", "123456789012")


def started(fis, machines, target=None, action=None, token=None):
    """A look at an experiment that was just started."""
    fault_injection.make_experiments_happen(machines)
    template = fis.create_experiment_template(
        None, "a drill", [], {"machine": TARGET | (target or {})}, {"go": ACTION | (action or {})},
        "arn:aws:iam::123456789012:role/drills",
    )  # fmt: skip
    begun = fis.start_experiment(token, template["id"], None)
    return lambda: fis.get_experiment(begun["id"])


def test_templates_are_known_after_a_restart(fis, tmp_path) -> None:
    fis.experiment_templates = fault_injection.Templates(tmp_path / "templates")
    role = "arn:aws:iam::123456789012:role/drills"
    made = [fis.create_experiment_template(None, "", [], {}, {"go": ACTION}, role) for _ in "ab"]
    fis.delete_experiment_template(made[0]["id"])

    again = FISBackend("us-east-1", "123456789012")
    again.experiment_templates = fault_injection.Templates(tmp_path / "templates")

    assert again.get_experiment_template(made[1]["id"]) == made[1]
    assert set(again.experiment_templates) == {made[1]["id"]}


def test_one_tagged_instance_is_warned_and_taken_two_minutes_later(fis) -> None:
    machines = Machines(an_instance(1, tag="no"), an_instance(2), an_instance(3))
    look = started(fis, machines)
    assert look()["state"]["status"] == "pending"
    assert machines.interrupted == [], "targets are looked for after the start"

    machines.pass_time()
    assert look()["state"]["status"] == "running"
    assert look()["actions"]["go"]["state"]["status"] == "running"
    assert machines.interrupted == [("i-2", 0)]

    assert machines.pass_time() == 120
    assert look()["state"]["status"] == "completed"


def test_a_longer_duration_recommends_to_leave_before_the_warning(fis) -> None:
    machines = Machines(an_instance(1))
    longer = {"parameters": {"durationBeforeInterruption": "PT5M"}}
    started(fis, machines, action=longer)

    machines.pass_time()

    assert machines.interrupted == [("i-1", 180)]


@pytest.mark.parametrize(
    ("instances", "target", "action", "reason"),
    [
        ([], {}, {}, "empty set"),
        ([an_instance(1, lifecycle=None)], {}, {}, "empty set"),
        ([an_instance(1, state="pending")], {}, {}, "empty set"),
        ([an_instance(1, tag="another")], {}, {}, "empty set"),
        ([an_instance(1)], {"resourceType": "aws:ec2:instance"}, {}, "aws:ec2:spot-instance"),
        ([an_instance(n) for n in range(6)], {"selectionMode": "ALL"}, {}, "more than 5"),
        ([an_instance(1)], {"selectionMode": "PERCENT(5)"}, {}, "not known here"),
        ([an_instance(1)], {"filters": [{"path": "Vpc", "values": []}]}, {}, "not known here"),
        ([an_instance(1)], {}, {"actionId": "aws:ec2:reboot-instances"}, "knows only"),
        ([an_instance(1)], {}, {"parameters": {}}, "not PT2M to PT15M"),
    ],
)
def test_an_experiment_that_cannot_be_carried_out_says_why(
    fis, instances, target, action, reason
) -> None:
    machines = Machines(*instances)
    look = started(fis, machines, target, action)

    machines.pass_time()

    state = look()["state"]
    assert state["status"] == "failed"
    assert reason in state["reason"]
    assert machines.interrupted == []


def test_an_experiment_that_is_stopped_in_time_takes_nothing(fis) -> None:
    machines = Machines(an_instance(1))
    look = started(fis, machines)

    fis.stop_experiment(look()["id"])
    machines.pass_time()

    assert look()["state"]["status"] == "stopped"
    assert machines.interrupted == []


def test_a_start_that_is_repeated_is_one_experiment(fis) -> None:
    machines = Machines(an_instance(1))
    look = started(fis, machines, token="once")

    fis.start_experiment("once", look()["experimentTemplateId"], None)

    assert len(machines.agenda) == 1
