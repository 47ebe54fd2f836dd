"""The instance metadata service (IMDSv2) of one emulated machine."""

import json
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from local.node.instances import Instance
from local.node.web import Request, Response

TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - a header's name
TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"
MOST_TTL_SECONDS = 21600
# What IMDS calls it, and what the market calls it.
SIGNALS = {
    "spot/instance-action": "notice",
    "events/recommendations/rebalance": "rebalance",
}

Market = Callable[[str], Awaitable[dict[str, Any] | None]]
"""Asks the market for this machine's `notice` or `rebalance`; None while there is none."""


class MetadataService:
    """Answers as EC2 does; everything but the token itself needs a token."""

    def __init__(self, instance: Instance, market: Market) -> None:
        self._market = market
        self._tokens: dict[str, float] = {}  # token -> when it expires
        self._facts = {
            "instance-id": instance.id,
            "instance-type": instance.type,
            "instance-life-cycle": instance.lifecycle,
            "placement/availability-zone": instance.zone,
            "placement/region": instance.zone[:-1],
            "local-hostname": instance.node_name,
        }

    async def __call__(self, request: Request) -> Response:
        if request.path == "/latest/api/token":
            return self._issue(request)
        if self._tokens.get(request.headers.get(TOKEN_HEADER, ""), 0) < time.monotonic():
            return Response(401, b"Unauthorized\n")
        if request.method != "GET":
            return Response(405, b"")
        name = request.path.removeprefix("/latest/meta-data/").rstrip("/")
        if name in self._facts:
            return Response(200, self._facts[name].encode())
        if name in SIGNALS:
            found = await self._market(SIGNALS[name])
            if found:
                return Response(200, json.dumps(found).encode())
        return Response(404, b"Not Found\n")

    def _issue(self, request: Request) -> Response:
        seconds = request.headers.get(TTL_HEADER, "")
        if request.method != "PUT":
            return Response(405, b"")
        if not seconds.isdigit() or not 1 <= int(seconds) <= MOST_TTL_SECONDS:
            return Response(400, b"Bad Request\n")
        token = secrets.token_urlsafe(40)
        now = time.monotonic()
        self._tokens = {one: end for one, end in self._tokens.items() if end >= now}
        self._tokens[token] = now + int(seconds)
        return Response(200, token.encode(), headers={TTL_HEADER: seconds})
