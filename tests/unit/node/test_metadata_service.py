"""The metadata service answers as EC2's, and passes on what the market tells the machine."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from local.node.instances import Instance
from local.node.metadata_service import MetadataService
from local.node.web import Request, Response

INSTANCE = Instance("i-1", "c5.large", "us-east-1b", "spot", "node", datetime.now(UTC))


class Machine:
    """A metadata service with a market that says what the test wants."""

    def __init__(self, **told: dict[str, Any]) -> None:
        async def market(what: str) -> dict[str, Any] | None:
            return told.get(what)

        self.service = MetadataService(INSTANCE, market)

    def ask(self, method: str, path: str, **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(method, f"/latest/{path}", {}, named, certified=False)

        async def answer() -> Response:
            return await self.service(request)

        return asyncio.run(answer())

    def get(self, name: str) -> Response:
        issued = self.ask("PUT", "api/token", x_aws_ec2_metadata_token_ttl_seconds="60")
        assert isinstance(issued.body, bytes)
        return self.ask("GET", f"meta-data/{name}", x_aws_ec2_metadata_token=issued.body.decode())


def test_facts_need_a_token() -> None:
    machine = Machine()

    assert machine.get("instance-id").body == b"i-1"
    assert machine.get("placement/availability-zone").body == b"us-east-1b"
    assert machine.ask("GET", "meta-data/instance-id").status == 401
    assert machine.get("no-such-thing").status == 404


def test_a_token_needs_put_and_a_lifetime() -> None:
    machine = Machine()

    assert machine.ask("GET", "api/token").status == 405
    assert machine.ask("PUT", "api/token").status == 400


def test_an_interruption_is_there_once_the_market_says_so() -> None:
    notice = {"action": "terminate", "time": "2026-11-01T00:02:00Z"}

    assert Machine().get("spot/instance-action").status == 404
    answer = Machine(notice=notice).get("spot/instance-action")
    assert answer.body == b'{"action": "terminate", "time": "2026-11-01T00:02:00Z"}'


def test_a_rebalance_recommendation_is_another_thing() -> None:
    machine = Machine(rebalance={"noticeTime": "2026-11-01T00:00:00Z"})

    assert machine.get("events/recommendations/rebalance").status == 200
    assert machine.get("spot/instance-action").status == 404
