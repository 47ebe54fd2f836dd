"""The running machines of an EC2 endpoint, and what each instance type brings to a node."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from botocore.config import Config

from local.node.emulator import session

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, InstanceTypeInfoTypeDef

MI = 1024 * 1024


@dataclass(frozen=True)
class Instance:
    """One running instance. `launched` is timezone-aware."""

    id: str
    type: str
    zone: str
    lifecycle: str  # "spot" or "on-demand", as the metadata service says it
    node_name: str
    launched: datetime

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


@dataclass(frozen=True)
class Machine:
    """Resources of an instance type as Kubernetes quantities, and its architecture."""

    architecture: str
    capacity: dict[str, str]
    allocatable: dict[str, str]


class Instances:
    """Reads one cluster's instances; without a cluster name, all of the endpoint's."""

    def __init__(self, endpoint: str, region: str, cluster_name: str | None = None) -> None:
        # It is asked again and again anyway: a repetition would only delay the next answer.
        once = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=15)
        self._ec2 = session().client("ec2", endpoint_url=endpoint, region_name=region, config=once)
        self._filters = [{"Name": "instance-state-name", "Values": ["running"]}]
        if cluster_name:
            key = f"tag:kubernetes.io/cluster/{cluster_name}"
            self._filters.append({"Name": key, "Values": ["owned"]})
        self._machines: dict[str, Machine] = {}

    def running(self) -> dict[str, Instance]:
        """By instance id. Raises what botocore raises when the endpoint does not answer."""
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": str(f["Name"]), "Values": list(f["Values"])} for f in self._filters]
        )
        found = (
            instance_of(one)
            for page in pages
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
        )
        return {instance.id: instance for instance in found}

    def machine(self, instance_type: str) -> Machine:
        if instance_type not in self._machines:
            answer = self._ec2.describe_instance_types(InstanceTypes=[instance_type])  # type: ignore[list-item]  # a literal of 1,000 types
            self._machines[instance_type] = machine_of(answer["InstanceTypes"][0])
        return self._machines[instance_type]


def instance_of(document: "InstanceTypeDef") -> Instance:
    """From DescribeInstances."""
    address = document["PrivateIpAddress"].replace(".", "-")
    return Instance(
        id=document["InstanceId"],
        type=document["InstanceType"],
        zone=document["Placement"]["AvailabilityZone"],
        lifecycle=document.get("InstanceLifecycle", "on-demand"),
        node_name=document.get("PrivateDnsName") or f"ip-{address}.ec2.internal",
        launched=document["LaunchTime"],
    )


def machine_of(document: "InstanceTypeInfoTypeDef") -> Machine:
    """From DescribeInstanceTypes, with the reservations that Karpenter assumes.

    Source: karpenter-provider-aws v1.14.0, pkg/providers/instancetype/types.go.
    """
    cores = document["VCpuInfo"]["DefaultVCpus"]
    architectures = document["ProcessorInfo"]["SupportedArchitectures"]
    size = document["MemoryInfo"]["SizeInMiB"] - (64 if architectures[0] == "arm64" else 0)
    memory = size - math.ceil(size * 0.075)
    network = document["NetworkInfo"]
    pods = network["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2
    capacity = {"pods": str(pods), "cpu": str(cores), "memory": f"{memory}Mi"}
    capacity["ephemeral-storage"] = "20Gi"
    for gpu in document.get("GpuInfo", {}).get("Gpus", []):
        capacity[f"{gpu['Manufacturer'].lower()}.com/gpu"] = str(gpu["Count"])
    return Machine(
        architecture="arm64" if architectures[0] == "arm64" else "amd64",
        capacity=capacity,
        allocatable=capacity
        | {
            "cpu": f"{cores * 1000 - reserved_millicores(cores)}m",
            "memory": f"{memory - (11 * pods + 255) - 100}Mi",
            "ephemeral-storage": "17Gi",
        },
    )


def reserved_millicores(cores: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the others."""
    shares = ((0, 1000, 0.06), (1000, 2000, 0.01), (2000, 4000, 0.005), (4000, 1 << 31, 0.0025))
    millis = cores * 1000
    return sum(
        int((min(millis, end) - start) * share) for start, end, share in shares if millis >= start
    )
