"""What every command shares, made only when it is first needed."""

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
    from cli.outbox import Outbox
    from cli.settings import Settings


@dataclass
class App:
    """Settings, the api and the submission queue of one command; time is replaceable."""

    profile: str | None = None
    api_url: str | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = field(default=time.sleep)

    @cached_property
    def settings(self) -> Settings:
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

    def stored(self, bucket: str, key: str) -> bytes:
        """An object of S3, by the caller's own rights. Raises CommandError."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above

        from cli.aws import explained  # noqa: PLC0415 - a verb pays only for what it uses

        try:
            answer = self.aws.client("s3").get_object(Bucket=bucket, Key=key)
            body: bytes = answer["Body"].read()
        except (BotoCoreError, ClientError) as error:
            told = explained(error)
            message = f"s3://{bucket}/{key} cannot be read: {told.message}"
            raise type(told)(message, hint=told.hint) from error
        return body

    def outbox(self, transport: str) -> Outbox:
        """The way of documents to the control plane: `sqs` or `events`."""
        from cli.outbox import EventOutbox, SqsOutbox  # noqa: PLC0415 - a verb pays only for what it uses

        if transport == "events":
            return EventOutbox(self.aws.client("events"), self.aws.published("bus").value)
        url = self.aws.published("queues/submissions").value
        return SqsOutbox(self.aws.client("sqs"), url)


pass_app: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(App)
