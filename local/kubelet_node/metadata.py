"""The metadata services of all nodes at one port of loopback, each below its node's name.

A real machine has its own at a link-local address, which on a developer's machine may be somebody
else's, or the machine's own. SDKs and the node agent find this one by the standard variable
AWS_EC2_METADATA_SERVICE_ENDPOINT.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import urllib3

from local.node.instances import Instance
from local.node.metadata_service import MetadataService
from local.node.web import Request, Response, serve

MARKET_SECONDS = 2.0
OK = 200


class Metadata:
    """`instances` are those of the running nodes, asked at every request."""

    def __init__(self, ec2: str, instances: Callable[[], list[Instance]]) -> None:
        self._market = f"{ec2.rstrip('/')}/_market/instances"
        self._instances = instances
        self._http = urllib3.PoolManager()
        self._services: dict[str, MetadataService] = {}  # by instance id

    def start(self, port: int) -> None:
        """Serve in a thread of its own for as long as this program lives."""
        loop = asyncio.new_event_loop()
        loop.run_until_complete(serve(self, port=port))
        threading.Thread(target=loop.run_forever, name="metadata", daemon=True).start()

    async def __call__(self, request: Request) -> Response:
        _, name, *rest = request.path.split("/")
        for instance in self._instances():
            if instance.node_name == name:
                path = "/" + "/".join(rest)
                return await self._service(instance)(replace(request, path=path))
        return Response(404, b"no such node\n")

    def _service(self, instance: Instance) -> MetadataService:
        if instance.id not in self._services:
            self._services[instance.id] = MetadataService(
                instance, lambda what: asyncio.to_thread(self._ask_market, instance.id, what)
            )
        return self._services[instance.id]

    def _ask_market(self, instance_id: str, what: str) -> dict[str, Any] | None:
        """The market's word for one machine; None without one."""
        try:
            answer = self._http.request(
                "GET", f"{self._market}/{instance_id}/{what}", timeout=MARKET_SECONDS, retries=False
            )
        except urllib3.exceptions.HTTPError:
            return None
        found: dict[str, Any] | None = json.loads(answer.data) if answer.status == OK else None
        return found
