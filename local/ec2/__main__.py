"""EC2, FIS, IAM and SSM for Karpenter: moto's server on 127.0.0.1 with a market that behaves.

    python -m local.ec2 --port 5555 --aws http://127.0.0.1:4566 --time-scale 1 --instance-delay 2

moto knows the instance types, their zones, fleets, launch templates and instances. Added here:
prices per type, zone and capacity type; a fleet that takes the cheapest override; offerings that
are sold out; instances that take time to start; interruptions with the exact events of EC2 on
MiniStack's default bus; experiments of FIS that interrupt; the price list (pricing:GetProducts)
that the market sells from. Control routes beside the AWS API:

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
from pathlib import Path
from typing import Any

from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.fis.models import fis_backends
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

from local.ec2.events import EventBus
from local.ec2.fault_injection import Templates, make_experiments_happen
from local.ec2.lifecycle import Ec2
from local.ec2.market import Market, Prices
from local.ec2.moto_market import offer_what_has_a_price, put_market_behind_moto
from local.ec2.routes import with_routes
from local.settings import NODE_ROLE

DISCOVERY_TAG = "karpenter.sh/discovery"
ZONES = 3  # as many subnets as a sensible cluster has


def prepare_account(backend: EC2Backend, account: str, cluster: str) -> None:
    """What a platform team has made before Karpenter comes: tagged subnets, a group, a role."""
    subnets = sorted(backend.describe_subnets(), key=lambda one: str(one.availability_zone))
    group: Any = backend.get_security_group_by_name_or_id("default")
    tagged = [subnet.id for subnet in subnets[:ZONES]] + [group.id]
    backend.create_tags(tagged, {DISCOVERY_TAG: cluster})
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


class QuietHandler(WSGIRequestHandler):
    """Karpenter and nodes ask every few seconds; only AWS calls that failed are worth a line."""

    protocol_version = "HTTP/1.1"  # keep connections: a new one for each call costs as much again

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if str(code) >= "400" and not self.path.startswith("/_market/"):
            super().log_request(code, size)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--aws", required=True, help="MiniStack's address")
    options.add_argument("--account", required=True)
    options.add_argument("--region", required=True)
    options.add_argument("--cluster", required=True)
    options.add_argument("--templates", type=Path, required=True, help="of experiments, kept here")
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
    make_experiments_happen(ec2)
    templates = Templates(chosen.templates)
    fis_backends[chosen.account][chosen.region].experiment_templates = templates
    offer_what_has_a_price(market.prices, chosen.region)
    prepare_account(backend, chosen.account, chosen.cluster)
    application = with_routes(DomainDispatcherApplication(create_backend_app), ec2)
    run_simple("127.0.0.1", chosen.port, application, threaded=True, request_handler=QuietHandler)


if __name__ == "__main__":
    main()
