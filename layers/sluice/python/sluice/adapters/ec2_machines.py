"""Whether machines still are, by EC2's own word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

    from sluice.ports import Clock, Document

AT_ONCE = 100
STATES = ["stopped", "terminated"]


@dataclass(frozen=True)
class EC2Machines:
    ec2: EC2Client
    region: str
    clock: Clock
    at_once: int = AT_ONCE

    def ended(self, instances: Sequence[str]) -> list[Document]:
        """EC2's event for each instance that has ended, as it would have been sent just now.

        EC2 forgets an instance an hour after its end. Nothing if EC2 does not answer: the question
        comes again.
        """
        found: list[Document] = []
        for first in range(0, len(instances), self.at_once):
            filters: Any = [
                {"Name": "instance-id", "Values": list(instances[first : first + self.at_once])},
                {"Name": "instance-state-name", "Values": STATES},
            ]
            try:
                pages = list(self.ec2.get_paginator("describe_instances").paginate(Filters=filters))
            except (BotoCoreError, ClientError):
                return found
            found += [
                self.event(instance, reservation["OwnerId"])
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]
        return found

    def event(self, instance: Any, account: str) -> Document:
        now = datetime.fromtimestamp(self.clock.now() / 1000, UTC)
        name, state = instance["InstanceId"], instance["State"]["Name"]
        return {
            "version": "0",
            "id": f"{name}-{state}",
            "source": "aws.ec2",
            "detail-type": "EC2 Instance State-change Notification",
            "account": account,
            "region": self.region,
            "time": now.isoformat(),
            "resources": [],
            "detail": {"instance-id": name, "state": state},
        }
