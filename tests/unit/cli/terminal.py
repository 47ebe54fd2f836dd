"""Runs the command against the control plane in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from click.testing import CliRunner, Result
from sluice.client.api import ApiClient
from sluice.client.errors import SluiceClientError
from sluice.client.sender import SubmissionMessage
from sluice.client.transport import ApiRequest, ApiResponse

from cli.app import App
from cli.main import sluice
from tests.unit.api.control_plane import RED, ControlPlane, Signer

MOST_NAPS = 500


@dataclass
class Terminal:
    """One person at a terminal; `sleeping` lets the world go on while a command waits."""

    plane: ControlPlane = field(default_factory=ControlPlane)
    signer: Signer = RED
    sleeping: Callable[[], None] = lambda: None
    sent: list[SubmissionMessage] = field(default_factory=list)
    naps: int = 0
    stored: dict[str, bytes] = field(default_factory=dict)
    """Objects of S3 that the person may read, by address."""

    def __call__(self, *arguments: str, input: str | None = None) -> Result:  # noqa: A002 - as CliRunner
        """Runs `sluice ARGUMENTS`; errors are shown as the entry point shows them."""
        app = App(now=lambda: self.plane.clock.now() / 1_000, sleep=self._sleep)
        app.__dict__["api"] = ApiClient(self.carry)
        app.__dict__["sender"] = lambda _: self.deliver
        app.__dict__["read_object"] = self.read
        return CliRunner().invoke(sluice, arguments, obj=app, input=input)

    def carry(self, request: ApiRequest) -> ApiResponse:
        status, document = self.plane.call(
            request.method,
            "/" + "/".join(segment.replace("/", "%2F") for segment in request.path),
            self.signer,
            request.body,
            dict(request.query) or None,
        )
        return ApiResponse(status, document)

    def read(self, bucket: str, key: str) -> bytes:
        if (address := f"s3://{bucket}/{key}") not in self.stored:
            raise SluiceClientError(f"{address} cannot be read")
        return self.stored[address]

    def deliver(self, messages: Sequence[SubmissionMessage]) -> None:
        for message in messages:
            self.sent.append(message)
            self.plane.clock.pass_ms(1_000)
            self.plane.deliver(message.body, self.signer)

    def _sleep(self, seconds: float) -> None:
        self.naps += 1
        assert self.naps < MOST_NAPS, "the command waits for ever"
        self.plane.clock.pass_ms(int(seconds * 1_000))
        self.sleeping()


def items(result: Result) -> list[dict[str, Any]]:
    """The rows of `-o json`."""
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["items"])
