"""EC2, IAM and SSM for Karpenter: moto's server on 127.0.0.1 with a market that behaves.

    python -m local.ec2 --port 5555 --aws http://127.0.0.1:4566 --time-scale 1 --instance-delay 2

moto knows the instance types, their zones, fleets, launch templates and instances. Added here:
prices per type, zone and capacity type; a fleet that takes the cheapest override; offerings that
are sold out; instances that take time to start; interruptions with the exact events of EC2 on
MiniStack's default bus. Control routes beside the AWS API:

    GET    /_market/instances               every instance with type, zone, state, price, notice
    GET    /_market/instances/ID/notice     {"action", "time"} as IMDS has it, or 404
    GET    /_market/instances/ID/rebalance  {"noticeTime"}, or 404
    POST   /_market/interrupt               {"instanceId", "rebalanceSeconds"?}
    POST   /_market/terminate               {"instanceId"}: it vanishes without notice
    GET|POST|DELETE /_market/sold-out       {"type"?, "zone"?, "capacityType"?, "seconds", "error"?}
    GET    /_market/image                   {"imageId"}: an x86_64 image for EC2NodeClasses
"""

import argparse
import json
import logging
import queue
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.fleets import Fleet
from moto.ec2.models.instance_types import (
    INSTANCE_TYPE_OFFERINGS,
    INSTANCE_TYPES,
    InstanceTypeBackend,
)
from moto.ec2.models.instances import Instance
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.spot_instances import SpotInstances
from moto.iam.models import iam_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.wrappers import Request, Response

from local.market import NOTICE_SECONDS, THROTTLED, Closure, Market, Offering, Prices
from local.settings import NODE_ROLE

Json = dict[str, Any]

DISCOVERY_TAG = "karpenter.sh/discovery"
ZONES = 3  # as many subnets as a sensible cluster has
FOREVER = float("inf")
log = logging.getLogger("ec2")


@dataclass(frozen=True)
class Notice:
    """An interruption that was announced; times are seconds since the epoch."""

    reclaim_at: float
    warned: bool
    recommended_at: float | None


class EventBus:
    """Posts EC2's events to MiniStack's default bus, in order, without holding up the EC2 API."""

    def __init__(self, aws: str) -> None:
        self.url = f"{aws}/_local/aws-events"
        self.waiting: queue.Queue[Json] = queue.Queue()
        threading.Thread(target=self._deliver, name="events", daemon=True).start()

    def put(self, detail_type: str, instance: Instance, at: float, **detail: str) -> None:
        """Queue one event; `at` becomes its `time`, from which receivers reckon deadlines."""
        zone = instance.availability_zone
        self.waiting.put(
            {
                "Source": "aws.ec2",
                "DetailType": detail_type,
                "Time": at,
                "Resources": [f"arn:aws:ec2:{zone}:instance/{instance.id}"],
                "Detail": json.dumps({"instance-id": instance.id, **detail}),
            }
        )

    def _deliver(self) -> None:
        while True:
            body = json.dumps({"Entries": [self.waiting.get()]}).encode()
            for pause in (0.5, 2, 5, None):  # events are best effort, on AWS as well
                try:
                    urllib.request.urlopen(self.url, data=body, timeout=10).close()
                    break
                except OSError as error:
                    log.warning("event not delivered: %s", error)
                    if pause is not None:
                        time.sleep(pause)


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


def put_market_behind_moto(ec2: Ec2) -> None:
    """Replace the five methods of moto that know nothing of prices, scarcity and time."""
    run_instances, terminate = EC2Backend.run_instances, Instance.terminate
    create_fleet = Fleets.create_fleet

    def cheapest(fleet: Any, weight: float) -> tuple[dict[Any, int], float]:
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
        choice = ec2.market.choose(specs, time.time())
        fleet.refused = [(refusal, specs[refusal.offering]) for refusal in choice.refused]
        if choice.taken is None:
            return {}, 0
        return {specs[choice.taken]: int(weight)}, weight

    def create_fleet_with_errors(self: Any) -> ActionResult:
        if ec2.market.throttled(time.time()):
            raise EC2ClientError(THROTTLED, "Request limit exceeded.")
        answer = create_fleet(self)
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

    def describe_spot_price_history(self: Any) -> ActionResult:
        offered = self.ec2_backend.describe_instance_type_offerings(
            location_type="availability-zone"
        )
        wanted = set(self._get_param("InstanceTypes", []))
        history = [
            {
                "InstanceType": one["InstanceType"],
                "AvailabilityZone": one["Location"],
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{ec2.market.prices.of(spot(one)):.5f}",
                "Timestamp": datetime.now(UTC),
            }
            for one in offered
            if not wanted or one["InstanceType"] in wanted
        ]
        return ActionResult({"SpotPriceHistory": history})

    def run_and_announce(self: Any, *positional: Any, **named: Any) -> Any:
        reservation = run_instances(self, *positional, **named)
        for instance in reservation.instances:
            ec2.launched(instance)
        return reservation

    def terminate_and_announce(self: Any) -> Any:
        was = self.state
        previous = terminate(self)
        if was != "terminated":
            ec2.terminated(self)
        return previous

    Fleet.get_launch_spec_counts = cheapest
    Fleets.create_fleet = create_fleet_with_errors
    SpotInstances.describe_spot_price_history = describe_spot_price_history
    EC2Backend.run_instances = run_and_announce
    Instance.terminate = terminate_and_announce


def offer_what_has_a_price(prices: Prices, region: str) -> None:
    """Take the other types off moto's shelves."""
    InstanceTypeBackend.instance_types = [
        one for one in InstanceTypeBackend.instance_types if prices.offer(one["InstanceType"])
    ]
    for regions in INSTANCE_TYPE_OFFERINGS.values():
        regions[region] = [one for one in regions[region] if prices.offer(one["InstanceType"])]


def spot(offered: Json) -> Offering:
    return Offering(offered["InstanceType"], offered["Location"], "spot")


def prepare_account(backend: EC2Backend, account: str, cluster: str) -> None:
    """What a platform team has made before Karpenter comes: tagged subnets, a group, a role."""
    subnets = sorted(backend.describe_subnets(), key=lambda one: str(one.availability_zone))
    group = backend.get_security_group_by_name_or_id("default")
    names = [subnet.id for subnet in subnets[:ZONES]]
    backend.create_tags([*names, group.id], {DISCOVERY_TAG: cluster})
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    iam_backends[account]["aws"].create_role(
        role_name=NODE_ROLE,
        assume_role_policy_document=json.dumps(trust),
        path="/",
        permissions_boundary=None,
        description="Nodes bought by Karpenter",
        tags=[],
        max_session_duration="3600",
    )


class Control:
    """The routes under /_market, beside moto's."""

    def __init__(self, ec2: Ec2) -> None:
        self.ec2 = ec2

    def answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        route = f"{request.method} {request.path.removeprefix('/_market/')}"
        if match := re.fullmatch(r"GET instances/([^/]+)/(notice|rebalance)", route):
            return self.metadata(match[1], match[2])
        routes: dict[str, Callable[[Json], Any]] = {
            "GET instances": lambda _: [self.ec2.describe(one) for one in self.ec2.instances()],
            "GET image": lambda _: {"imageId": self.image()},
            "POST interrupt": self.interrupt,
            "POST terminate": self.terminate,
            "GET sold-out": lambda _: [vars(one) for one in self.ec2.market.closed(time.time())],
            "POST sold-out": self.close,
            "DELETE sold-out": lambda _: self.ec2.market.reopen(),
        }
        if route not in routes:
            return HTTPStatus.NOT_FOUND, {"message": f"no such route: {route}"}
        body = request.get_json() if request.data else {}
        answer = routes[route](body)
        return HTTPStatus.OK, {} if answer is None else answer

    def metadata(self, instance_id: str, channel: str) -> tuple[HTTPStatus, Any]:
        notice = self.ec2.notices.get(instance_id)
        if channel == "notice" and notice and notice.warned:
            return HTTPStatus.OK, {"action": "terminate", "time": iso(notice.reclaim_at)}
        if channel == "rebalance" and notice and notice.recommended_at:
            return HTTPStatus.OK, {"noticeTime": iso(notice.recommended_at)}
        return HTTPStatus.NOT_FOUND, {"message": f"no {channel} for {instance_id}"}

    def image(self) -> str:
        images: Iterable[Any] = self.ec2.backend.describe_images()
        return str(min(one.id for one in images if one.architecture == "x86_64"))

    def interrupt(self, body: Json) -> Json:
        instance = self.ec2.instance(body["instanceId"])
        if instance.lifecycle != "spot":
            raise ValueError(f"{instance.id} is on demand: EC2 interrupts spot instances only")
        lead = body.get("rebalanceSeconds")
        notice = self.ec2.interrupt(instance, None if lead is None else float(lead))
        return {"instanceId": instance.id, "reclaimTime": iso(notice.reclaim_at)}

    def terminate(self, body: Json) -> None:
        self.ec2.vanish(self.ec2.instance(body["instanceId"]))

    def close(self, body: Json) -> None:
        seconds = body.get("seconds")
        self.ec2.market.close(
            Closure(
                instance_type=body.get("type"),
                zone=body.get("zone"),
                capacity_type=body.get("capacityType"),
                error=body.get("error", "InsufficientInstanceCapacity"),
                until=FOREVER if seconds is None else time.time() + float(seconds),
            )
        )


def application(ec2: Ec2) -> Callable[..., Any]:
    moto_server = DomainDispatcherApplication(create_backend_app)
    control = Control(ec2)

    def serve(environ: Json, start_response: Callable[..., Any]) -> Any:
        if not environ["PATH_INFO"].startswith("/_market/"):
            return moto_server(environ, start_response)
        try:
            status, document = control.answer(Request(environ))
        except (KeyError, TypeError, ValueError, EC2ClientError) as error:
            status, document = HTTPStatus.BAD_REQUEST, {"message": str(error)}
        response = Response(json.dumps(document), status, content_type="application/json")
        return response(environ, start_response)

    return serve


class QuietHandler(WSGIRequestHandler):
    """Karpenter asks every few seconds; only what failed is worth a line."""

    protocol_version = "HTTP/1.1"  # keep connections: a new one for each call costs as much again

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if str(code) >= "400":
            super().log_request(code, size)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--aws", required=True, help="MiniStack's address")
    options.add_argument("--account", required=True)
    options.add_argument("--region", required=True)
    options.add_argument("--cluster", required=True)
    options.add_argument("--time-scale", type=float, default=1.0)
    options.add_argument("--instance-delay", type=float, default=2.0, help="seconds")
    options.add_argument("--prices", type=Path, default=Path(__file__).with_name("prices.json"))
    chosen = options.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")

    backend = ec2_backends[chosen.account][chosen.region]
    vcpus = {name: kind["VCpuInfo"]["DefaultVCpus"] for name, kind in INSTANCE_TYPES.items()}
    market = Market(Prices.read(chosen.prices, vcpus))
    ec2 = Ec2(
        backend,
        market,
        EventBus(chosen.aws),
        scale=chosen.time_scale,
        delay=chosen.instance_delay,
    )
    put_market_behind_moto(ec2)
    offer_what_has_a_price(market.prices, chosen.region)
    prepare_account(backend, chosen.account, chosen.cluster)
    run_simple(
        "127.0.0.1", chosen.port, application(ec2), threaded=True, request_handler=QuietHandler
    )


if __name__ == "__main__":
    main()
