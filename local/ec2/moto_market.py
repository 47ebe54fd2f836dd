"""Puts the market behind moto, which knows nothing of prices, scarcity and time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.fleets import Fleet
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, InstanceTypeBackend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.spot_instances import SpotInstances

from local.ec2.lifecycle import Ec2
from local.ec2.market import THROTTLED, Market, Offering, Prices

Json = dict[str, Any]


def put_market_behind_moto(ec2: Ec2) -> None:
    """Replace the five methods of moto that know nothing of prices, scarcity and time."""
    replacements: tuple[tuple[type, str, Callable[..., Any]], ...] = (
        (Fleet, "get_launch_spec_counts", cheapest(ec2.market)),
        (Fleets, "create_fleet", create_fleet_with_errors(ec2.market)),
        (SpotInstances, "describe_spot_price_history", spot_price_history(ec2.market.prices)),
        (EC2Backend, "run_instances", announcing_launches(ec2)),
        (Instance, "terminate", announcing_ends(ec2)),
    )
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)


def cheapest(market: Market) -> Callable[..., Any]:
    """Moto's fleet takes the first override; ours the cheapest one that can be had."""

    def choose(fleet: Any, weight: float) -> tuple[dict[Any, int], float]:
        kind = (fleet.target_capacity_specification or {}).get("DefaultTargetCapacityType")
        capacity: Any = "spot" if kind == "spot" else "on-demand"
        specs = {
            Offering(
                spec.instance_type,
                fleet.ec2_backend.get_subnet(spec.subnet_id).availability_zone,
                capacity,
            ): spec
            for spec in fleet.launch_specs
        }
        choice = market.choose(specs, time.time())
        fleet.refused = [(refusal, specs[refusal.offering]) for refusal in choice.refused]
        if choice.taken is None:
            return {}, 0
        taken = specs[choice.taken]
        taken.group_set = security_groups(fleet, taken)
        return {taken: int(weight)}, weight

    return choose


def security_groups(fleet: Any, spec: Any) -> list[str]:
    """The groups of the launch template's network interface, which moto's fleets overlook.

    Without them Karpenter finds every node drifted, and replaces it.
    """
    wanted = spec.launch_template_spec
    template = fleet.ec2_backend.get_launch_template(wanted["LaunchTemplateId"])
    data = template.get_version(wanted.get("Version", template.default_version_number)).data
    interfaces = data.get("NetworkInterfaces", [{}])
    groups: list[str] = interfaces[0].get("Groups") or data.get("SecurityGroupIds", [])
    return groups


def create_fleet_with_errors(market: Market) -> Callable[..., Any]:
    """CreateFleet names the offerings that were tried in vain; a throttled call fails whole."""
    create_fleet = Fleets.create_fleet

    def create(self: Any) -> Any:
        if market.throttled(time.time()):
            raise EC2ClientError(THROTTLED, "Request limit exceeded.")
        answer: Any = create_fleet(self)
        fleet = self.ec2_backend.get_fleet(answer.result["FleetId"])
        answer.result["Errors"] = [
            {
                "LaunchTemplateAndOverrides": {
                    "LaunchTemplateSpecification": spec.launch_template_spec,
                    "Overrides": spec.overrides,
                },
                "Lifecycle": refusal.offering.capacity_type,
                "ErrorCode": refusal.code,
                "ErrorMessage": refusal.message,
            }
            for refusal, spec in getattr(fleet, "refused", [])
        ]
        return answer

    return create


def spot_price_history(prices: Prices) -> Callable[..., Any]:
    def describe(self: Any) -> ActionResult:
        offered = self.ec2_backend.describe_instance_type_offerings(
            location_type="availability-zone"
        )
        wanted = set(self._get_param("InstanceTypes", []))
        history = [
            {
                "InstanceType": one["InstanceType"],
                "AvailabilityZone": one["Location"],
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{prices.of(spot(one)):.5f}",
                "Timestamp": datetime.now(UTC),
            }
            for one in offered
            if not wanted or one["InstanceType"] in wanted
        ]
        return ActionResult({"SpotPriceHistory": history})

    return describe


def announcing_launches(ec2: Ec2) -> Callable[..., Any]:
    run_instances = EC2Backend.run_instances

    def run(self: Any, *positional: Any, **named: Any) -> Any:
        reservation = run_instances(self, *positional, **named)
        for instance in reservation.instances:
            ec2.launched(instance)
        return reservation

    return run


def announcing_ends(ec2: Ec2) -> Callable[..., Any]:
    terminate = Instance.terminate

    def end(self: Any) -> Any:
        was = self.state
        previous = terminate(self)
        if was != "terminated":
            ec2.terminated(self)
        return previous

    return end


def offer_what_has_a_price(prices: Prices, region: str) -> None:
    """Take the other types off moto's shelves."""
    InstanceTypeBackend.instance_types = [
        one for one in InstanceTypeBackend.instance_types if prices.offer(one["InstanceType"])
    ]
    for regions in INSTANCE_TYPE_OFFERINGS.values():
        regions[region] = [one for one in regions[region] if prices.offer(one["InstanceType"])]


def spot(offered: Json) -> Offering:
    return Offering(offered["InstanceType"], offered["Location"], "spot")
