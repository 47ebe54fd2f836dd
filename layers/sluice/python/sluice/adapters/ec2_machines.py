"""Whether machines still are, by EC2's own word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

    from sluice.ports import Clock, Document

AT_ONCE = 100
STATES = ["stopped", "terminated"]
NAMES_CLUSTER = ("eks:eks-cluster-name", "eks:cluster-name", "alpha.eksctl.io/cluster-name")
"""Tags of Karpenter, of EKS' node groups and of eksctl whose value is the cluster's name."""
OF_CLUSTER = "kubernetes.io/cluster/"


@dataclass(frozen=True)
class EC2Machines:
    ec2: Callable[[], EC2Client]
    """Asked late: most runs ask EC2 nothing, and its client is the largest of all to load."""
    clock: Clock
    at_once: int = AT_ONCE

    def ended(self, instances: Sequence[str]) -> list[Document]:
        """EC2's event for each instance that has ended, as it would have been sent just now.

        EC2 forgets an instance an hour after its end. Nothing if EC2 does not answer: the question
        comes again.
        """
        states: Any = [{"Name": "instance-state-name", "Values": STATES}]
        return [self.event(each, owner) for each, owner in self._describe(instances, states)]

    def clusters_of(self, instances: Sequence[str]) -> dict[str, frozenset[str]]:
        return {
            each["InstanceId"]: frozenset(_clusters(each.get("Tags") or ()))
            for each, _ in self._describe(instances, [])
        }

    def _describe(self, instances: Sequence[str], filters: list[Any]) -> list[tuple[Any, str]]:
        """Each instance with its owner; those that were told before EC2 stopped answering."""
        found: list[tuple[Any, str]] = []
        for first in range(0, len(instances), self.at_once):
            named: Any = {
                "Name": "instance-id",
                "Values": list(instances[first : first + self.at_once]),
            }
            try:
                asked = self.ec2().get_paginator("describe_instances")
                pages = list(asked.paginate(Filters=[named, *filters]))
            except (BotoCoreError, ClientError):
                return found
            found += [
                (instance, reservation["OwnerId"])
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
            "region": self.ec2().meta.region_name,
            "time": now.isoformat(),
            "resources": [],
            "detail": {"instance-id": name, "state": state},
        }


def _clusters(tags: Iterable[Any]) -> Iterator[str]:
    for tag in tags:
        if tag["Key"] in NAMES_CLUSTER:
            yield tag["Value"]
        elif tag["Key"].startswith(OF_CLUSTER):
            yield tag["Key"].removeprefix(OF_CLUSTER)
