"""Instances start, are warned and end in the order, and with the events, of EC2."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from local.ec2.lifecycle import Ec2


@dataclass
class RecordedEvents:
    put_events: list = field(default_factory=list)

    def put(self, detail_type, instance, at, **detail):
        self.put_events.append((detail_type, detail, at))

    def kinds(self):
        return [kind for kind, _, _ in self.put_events]

    def states(self):
        return [detail["state"] for _, detail, _ in self.put_events if "state" in detail]


class AnInstance:
    """As much of moto's instance as the life cycle touches."""

    id, availability_zone = "i-1", "us-east-1a"

    def __init__(self):
        self._state = SimpleNamespace(name="running", code=16)

    @property
    def state(self):
        return self._state.name


class ManualEc2(Ec2):
    """Time passes when the test says so."""

    events: Any
    instance_under_test: AnInstance

    def __init__(self, *, scale=1.0, delay=0.0):
        self.agenda = []
        super().__init__(self, None, RecordedEvents(), scale=scale, delay=delay)

    def later(self, seconds, action):
        self.agenda.append((seconds, action))

    def pass_time(self, until):
        due = [entry for entry in self.agenda if entry[0] <= until]
        self.agenda = [entry for entry in self.agenda if entry[0] > until]
        for _, action in sorted(due, key=lambda entry: entry[0]):
            action()

    def terminate_instances(self, _):
        self.instance_under_test._state.name = "terminated"
        self.terminated(self.instance_under_test)


def a_running_instance(ec2):
    ec2.instance_under_test = AnInstance()
    return ec2.instance_under_test


def test_a_new_instance_is_pending_and_then_running() -> None:
    ec2 = ManualEc2(delay=40)
    instance = a_running_instance(ec2)

    ec2.launched(instance)
    assert instance.state == "pending"
    ec2.pass_time(until=40)

    assert instance.state == "running"
    assert ec2.events.states() == ["pending", "running"]


def test_an_instance_that_ended_while_pending_does_not_come_to_life() -> None:
    ec2 = ManualEc2(delay=40)
    instance = a_running_instance(ec2)
    ec2.launched(instance)

    ec2.vanish(instance)
    ec2.pass_time(until=40)

    assert instance.state == "terminated"


def test_a_warning_comes_two_minutes_before_the_end() -> None:
    ec2 = ManualEc2()
    instance = a_running_instance(ec2)

    notice = ec2.interrupt(instance, None)
    ec2.pass_time(until=119)

    kind, detail, at = ec2.events.put_events[0]
    assert kind == "EC2 Spot Instance Interruption Warning"
    assert detail == {"instance-action": "terminate"}
    assert at + 120 == pytest.approx(notice.reclaim_at)
    assert instance.state == "running"

    ec2.pass_time(until=121)
    assert instance.state == "terminated"
    assert ec2.events.states() == ["shutting-down", "terminated"]


def test_in_scaled_time_the_end_is_still_two_minutes_after_the_events_time() -> None:
    ec2 = ManualEc2(scale=0.1)
    instance = a_running_instance(ec2)

    notice = ec2.interrupt(instance, None)
    ec2.pass_time(until=0)
    _, _, at = ec2.events.put_events[0]
    assert at + 120 == pytest.approx(notice.reclaim_at)

    ec2.pass_time(until=12.5)
    assert instance.state == "terminated"


def test_a_rebalance_recommendation_comes_first_and_the_warning_after_its_lead() -> None:
    ec2 = ManualEc2()
    instance = a_running_instance(ec2)

    ec2.interrupt(instance, 300)
    assert ec2.events.kinds() == ["EC2 Instance Rebalance Recommendation"]
    assert not ec2.notices["i-1"].warned

    ec2.pass_time(until=301)
    assert ec2.events.kinds()[-1] == "EC2 Spot Instance Interruption Warning"
    assert ec2.notices["i-1"].warned
    assert instance.state == "running"


def test_an_instance_that_is_gone_is_not_warned() -> None:
    ec2 = ManualEc2()
    instance = a_running_instance(ec2)
    ec2.interrupt(instance, 300)

    ec2.vanish(instance)
    ec2.pass_time(until=500)

    assert "EC2 Spot Instance Interruption Warning" not in ec2.events.kinds()
    assert ec2.events.states() == ["shutting-down", "terminated"]
