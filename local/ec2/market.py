"""The market of the embedded EC2: what an offering costs, which are sold out, who is warned.

Pure bookkeeping without EC2 or a clock; `local.ec2` puts it to work.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

CapacityType = Literal["spot", "on-demand"]

NOTICE_SECONDS = 120  # EC2 reclaims a spot instance two minutes after its warning

# What EC2 says when an offering cannot be had: code -> message.
REFUSALS = {
    "InsufficientInstanceCapacity": (
        "We currently do not have sufficient {type} capacity in the Availability Zone you "
        "requested ({zone})."
    ),
    "VcpuLimitExceeded": (
        "You have requested more vCPU capacity than your current vCPU limit allows for the "
        "instance bucket that the specified instance type belongs to."
    ),
    "MaxSpotInstanceCountExceeded": "Max spot instance count exceeded",
    "UnfulfillableCapacity": "Unable to fulfill capacity due to your request configuration.",
}
THROTTLED = "RequestLimitExceeded"  # refuses the whole call, not one offering


@dataclass(frozen=True)
class Offering:
    instance_type: str
    zone: str
    capacity_type: CapacityType


@dataclass(frozen=True)
class Prices:
    """Dollars per hour for every offering; the format is that of prices.json."""

    on_demand_per_vcpu: dict[str, float]
    on_demand_per_type: dict[str, float]
    spot_share: dict[str, float]
    spot_share_elsewhere: float
    vcpus: dict[str, int]

    @classmethod
    def read(cls, path: Path, vcpus: dict[str, int]) -> "Prices":
        document = json.loads(path.read_text())
        document.pop("source", None)
        return cls(vcpus=vcpus, **document)

    def offer(self, instance_type: str) -> bool:
        """Whether the type has a price; EC2 here offers no others."""
        return (
            instance_type in self.on_demand_per_type
            or family(instance_type) in self.on_demand_per_vcpu
        )

    def on_demand(self, instance_type: str) -> float:
        if instance_type in self.on_demand_per_type:
            return self.on_demand_per_type[instance_type]
        return self.on_demand_per_vcpu[family(instance_type)] * self.vcpus[instance_type]

    def of(self, offering: Offering) -> float:
        price = self.on_demand(offering.instance_type)
        if offering.capacity_type == "on-demand":
            return price
        return price * self.spot_share.get(offering.zone, self.spot_share_elsewhere)


def family(instance_type: str) -> str:
    return instance_type.partition(".")[0]


@dataclass(frozen=True)
class Closure:
    """Offerings that cannot be had until a moment; None matches everything."""

    instance_type: str | None
    zone: str | None
    capacity_type: CapacityType | None
    error: str
    until: float

    def __post_init__(self) -> None:
        if self.error != THROTTLED and self.error not in REFUSALS:
            known = ", ".join([*REFUSALS, THROTTLED])
            raise ValueError(f"{self.error!r} is no refusal of EC2 known here: {known}")

    def covers(self, offering: Offering) -> bool:
        return (
            self.instance_type in (None, offering.instance_type)
            and self.zone in (None, offering.zone)
            and self.capacity_type in (None, offering.capacity_type)
        )


@dataclass(frozen=True)
class Refusal:
    offering: Offering
    code: str

    @property
    def message(self) -> str:
        return REFUSALS[self.code].format(type=self.offering.instance_type, zone=self.offering.zone)


@dataclass(frozen=True)
class Choice:
    """The cheapest offering to be had, and the cheaper ones that could not."""

    taken: Offering | None
    refused: tuple[Refusal, ...]


@dataclass
class Market:
    prices: Prices
    closures: list[Closure] = field(default_factory=list)

    def close(self, closure: Closure) -> None:
        self.closures.append(closure)

    def reopen(self) -> None:
        self.closures.clear()

    def closed(self, now: float) -> list[Closure]:
        """The closures in force; those that ran out are forgotten."""
        self.closures = [closure for closure in self.closures if closure.until > now]
        return list(self.closures)

    def throttled(self, now: float) -> bool:
        return any(closure.error == THROTTLED for closure in self.closed(now))

    def refusal(self, offering: Offering, now: float) -> Refusal | None:
        for closure in self.closed(now):
            if closure.error != THROTTLED and closure.covers(offering):
                return Refusal(offering, closure.error)
        return None

    def choose(self, offerings: Iterable[Offering], now: float) -> Choice:
        """The cheapest offering that is not sold out; ties go to the first by name."""
        refused: list[Refusal] = []
        for offering in sorted(
            offerings, key=lambda one: (self.prices.of(one), one.instance_type, one.zone)
        ):
            refusal = self.refusal(offering, now)
            if refusal is None:
                return Choice(offering, tuple(refused))
            refused.append(refusal)
        return Choice(None, tuple(refused))
