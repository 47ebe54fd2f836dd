"""The control routes of the embedded EC2, under /_market."""

import json
import re
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from werkzeug.wrappers import Request, Response

from local.ec2.lifecycle import Ec2, iso
from local.ec2.market import Closure
from local.ec2.price_list import GET_PRODUCTS, products

Json = dict[str, Any]
WsgiApplication = Callable[..., Any]
FOREVER = float("inf")


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
            "GET sold-out": lambda _: [
                closure_document(one) for one in self.ec2.market.closed(time.time())
            ],
            "POST sold-out": self.close,
            "DELETE sold-out": lambda _: self.ec2.market.reopen(),
        }
        if route not in routes:
            return HTTPStatus.NOT_FOUND, {"message": f"no such route: {route}"}
        body = request.get_json() if request.data else {}
        answer = routes[route](body)
        return HTTPStatus.OK, {} if answer is None else answer

    def price_list(self, request: Request) -> tuple[HTTPStatus, Any]:
        """Of the region of this EC2, whichever region serves the list."""
        region = self.ec2.backend.region_name
        return HTTPStatus.OK, products(self.ec2.market.prices, region, request.get_json(force=True))

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


def closure_document(closure: Closure) -> Json:
    return {
        "type": closure.instance_type,
        "zone": closure.zone,
        "capacityType": closure.capacity_type,
        "error": closure.error,
        "until": None if closure.until == FOREVER else iso(closure.until),
    }


def with_routes(moto_server: WsgiApplication, ec2: Ec2) -> WsgiApplication:
    """Moto's server with the market's routes and its price list beside it."""
    control = Control(ec2)

    def serve(environ: Json, start_response: Callable[..., Any]) -> Any:
        priced = environ.get("HTTP_X_AMZ_TARGET") == GET_PRODUCTS
        if not priced and not environ["PATH_INFO"].startswith("/_market/"):
            return moto_server(environ, start_response)
        try:
            status, document = (
                control.price_list(Request(environ)) if priced else control.answer(Request(environ))
            )
        except (KeyError, TypeError, ValueError, EC2ClientError) as error:
            status, document = HTTPStatus.BAD_REQUEST, {"message": str(error)}
        response = Response(json.dumps(document), status, content_type="application/json")
        return response(environ, start_response)

    return serve
