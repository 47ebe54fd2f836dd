"""What every command shares; each part is created when it is first used."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cli.aws import Aws
    from cli.client import Client
    from cli.sender import Sender
    from cli.settings import ClientSettings


@dataclass
class App:
    """ClientSettings, the api and the submission queue of one command; time is replaceable."""

    profile: str | None = None
    api_url: str | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = field(default=time.sleep)

    @cached_property
    def settings(self) -> ClientSettings:
        from cli.settings import discover  # noqa: PLC0415 - a verb pays only for what it uses

        return discover(profile=self.profile, api_url=self.api_url)

    @cached_property
    def aws(self) -> Aws:
        from cli.aws import Aws  # noqa: PLC0415 - a verb pays only for what it uses

        return Aws(self.settings)

    @cached_property
    def client(self) -> Client:
        from cli.client import Client  # noqa: PLC0415 - a verb pays only for what it uses

        return Client(self.aws.transport())

    def read_object(self, bucket: str, key: str) -> bytes:
        """Reads an object from S3 with the caller's own credentials. Raises CliError."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above

        from cli.aws import from_aws  # noqa: PLC0415 - a verb pays only for what it uses

        try:
            answer = self.aws.client("s3").get_object(Bucket=bucket, Key=key)
            body: bytes = answer["Body"].read()
        except (BotoCoreError, ClientError) as error:
            failure = from_aws(error)
            message = f"s3://{bucket}/{key} cannot be read: {failure.message}"
            raise type(failure)(message, hint=failure.hint) from error
        return body

    def sender(self, transport: str) -> Sender:
        """The sender for a transport: `sqs` or `events`."""
        from cli.sender import EventBridgeSender, SqsSender  # noqa: PLC0415 - a verb pays only for what it uses

        if transport == "events":
            return EventBridgeSender(self.aws.client("events"), self.aws.published("bus").value)
        url = self.aws.published("queues/submissions").value
        return SqsSender(self.aws.client("sqs"), url)


pass_app: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(App)
