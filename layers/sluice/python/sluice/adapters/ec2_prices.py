"""What an instance costs: spot prices from EC2, on-demand prices from the price list."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

    from sluice.ports import Clock

KEPT_MS = 3_600_000
LINUX = "Linux/UNIX"
Offering = tuple[str, str, str]  # type, zone, capacity type


@dataclass(frozen=True)
class EC2Prices:
    """Asks once an hour for each offering; an unknown price is None, never a guess."""

    ec2: EC2Client
    pricing: Any
    region: str
    clock: Clock
    kept: dict[Offering, tuple[int, float | None]] = field(default_factory=dict)

    def hourly(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """Dollars per hour."""
        offering = (instance_type, zone, capacity_type)
        now = self.clock.now()
        asked, price = self.kept.get(offering, (0, None))
        if now - asked > KEPT_MS:
            try:
                spot = capacity_type == "spot"
                price = self._spot(instance_type, zone) if spot else self._on_demand(instance_type)
            except (BotoCoreError, ClientError):
                price = None  # the bill is told without it; admission never waits for a price
            self.kept[offering] = (now, price)
        return price

    def _spot(self, instance_type: str, zone: str) -> float | None:
        answer = self.ec2.describe_spot_price_history(
            InstanceTypes=[instance_type],  # type: ignore[list-item]
            AvailabilityZone=zone,
            ProductDescriptions=[LINUX],
            MaxResults=100,
        )
        prices = [
            each
            for each in answer["SpotPriceHistory"]
            if each.get("InstanceType") == instance_type and each.get("AvailabilityZone") == zone
        ]
        newest = max(prices, key=lambda each: each["Timestamp"], default=None)
        return float(newest["SpotPrice"]) if newest else None

    def _on_demand(self, instance_type: str) -> float | None:
        wanted = {
            "instanceType": instance_type,
            "regionCode": self.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            # The other options are Capacity Blocks, whose products read $0 here.
            "marketoption": "OnDemand",
        }
        answer = self.pricing.get_products(
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": name, "Value": value}
                for name, value in wanted.items()
            ],
            MaxResults=100,
        )
        for product in answer["PriceList"]:
            for term in json.loads(product)["terms"]["OnDemand"].values():
                for dimension in term["priceDimensions"].values():
                    price = float(dimension["pricePerUnit"].get("USD", 0))
                    if price > 0:  # nothing that one can buy is free
                        return price
        return None
