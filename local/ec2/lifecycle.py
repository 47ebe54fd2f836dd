"""What happens to instances in the course of time: they start, are warned, and end."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.ec2.market import NOTICE_SECONDS, Market, Offering

if TYPE_CHECKING:
    from collections.abc import Callable

    from moto.ec2.models import EC2Backend
    from moto.ec2.models.instances import Instance

    from local.ec2.events import EventBus

Json = dict[str, Any]


@dataclass(frozen=True)
class Notice:
    """An interruption that was announced; times are seconds since the epoch."""

    reclaim_at: float
    warned: bool
    recommended_at: float | None


class Ec2:
    """The market at work on moto's backend of one account and region."""

    def __init__(
        self, backend: EC2Backend, market: Market, events: EventBus, *, scale: float, delay: float
    ) -> None:
        self.backend, self.market, self.events = backend, market, events
        self.scale, self.delay = scale, delay
        self.notices: dict[str, Notice] = {}

    def launched(self, instance: Instance) -> None:
        """A new instance is pending for a while, then running."""
        instance._state.name, instance._state.code = "pending", 0  # noqa: SLF001 - moto's own field
        self.changed(instance, "pending")
        self.later(self.delay, lambda: self.run(instance))

    def run(self, instance: Instance) -> None:
        if instance.state == "pending":
            instance._state.name, instance._state.code = "running", 16  # noqa: SLF001 - as above
            self.changed(instance, "running")

    def terminated(self, instance: Instance) -> None:
        self.changed(instance, "shutting-down")
        self.changed(instance, "terminated")

    def changed(self, instance: Instance, state: str) -> None:
        kind = "EC2 Instance State-change Notification"
        self.events.put(kind, instance, time.time(), state=state)

    def interrupt(self, instance: Instance, rebalance_seconds: float | None) -> Notice:
        """Recommend to rebalance if asked, warn, and take the instance back two minutes later.

        With a time scale below 1 everything is as much shorter, and the warning's `time` lies so
        far in the past that `time` + 120 s is still the moment at which the instance is taken.
        """
        now = time.time()
        lead = 0.0 if rebalance_seconds is None else rebalance_seconds * self.scale
        reclaim_at = now + lead + NOTICE_SECONDS * self.scale
        recommended_at = None if rebalance_seconds is None else now
        notice = Notice(reclaim_at, lead == 0, recommended_at)
        self.notices[instance.id] = notice
        if recommended_at is not None:
            self.events.put("EC2 Instance Rebalance Recommendation", instance, now)
        self.later(lead, lambda: self.warn(instance))
        self.later(reclaim_at - now, lambda: self.vanish(instance))
        return notice

    def warn(self, instance: Instance) -> None:
        if instance.state == "terminated":
            return
        notice = self.notices[instance.id]
        self.notices[instance.id] = Notice(notice.reclaim_at, True, notice.recommended_at)
        self.events.put(
            "EC2 Spot Instance Interruption Warning",
            instance,
            notice.reclaim_at - NOTICE_SECONDS,
            **{"instance-action": "terminate"},
        )

    def vanish(self, instance: Instance) -> None:
        if instance.state != "terminated":
            self.backend.terminate_instances([instance.id])

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        if seconds <= 0:
            action()
            return
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()

    def describe(self, instance: Instance) -> Json:
        notice = self.notices.get(instance.id)
        offering = offering_of(instance)
        return {
            "instanceId": instance.id,
            "type": offering.instance_type,
            "zone": offering.zone,
            "capacityType": offering.capacity_type,
            "state": instance.state,
            "launchTime": iso(instance.launch_time.timestamp()),
            "privateIp": instance.private_ip_address,
            "dollarsPerHour": round(self.market.prices.of(offering), 6),
            "reclaimTime": iso(notice.reclaim_at) if notice and notice.warned else None,
        }

    def instances(self) -> list[Instance]:
        return [one for group in self.backend.all_reservations() for one in group.instances]

    def instance(self, instance_id: str) -> Instance:
        return self.backend.get_instance(instance_id)


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def offering_of(instance: Instance) -> Offering:
    capacity: Any = "spot" if instance.lifecycle == "spot" else "on-demand"
    return Offering(instance.instance_type, instance.availability_zone or "", capacity)
