"""The connection to one deployment: settings, AWS clients, the api and the submission queue.

Every part is created when it is first used, so that a caller pays only for what it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.client.api import ApiClient
    from sluice.client.aws import Aws
    from sluice.client.sender import Sender
    from sluice.client.settings import ClientSettings


@dataclass
class Connection:
    """Settings, the api and the submission queue; time is replaceable."""

    profile: str | None = None
    api_url: str | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = field(default=time.sleep)

    @cached_property
    def settings(self) -> ClientSettings:
        from sluice.client.settings import discover  # noqa: PLC0415 - see the module

        return discover(profile=self.profile, api_url=self.api_url)

    @cached_property
    def aws(self) -> Aws:
        from sluice.client.aws import Aws  # noqa: PLC0415 - see the module

        return Aws(self.settings)

    @cached_property
    def api(self) -> ApiClient:
        from sluice.client.api import ApiClient  # noqa: PLC0415 - see the module

        return ApiClient(self.aws.transport())

    def read_object(self, bucket: str, key: str) -> bytes:
        """Reads an object from S3 with the caller's own credentials. Raises SluiceClientError."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - see the module

        from sluice.client.aws import from_aws  # noqa: PLC0415 - see the module

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
        from sluice.client.sender import (  # noqa: PLC0415 - see the module
            EventBridgeSender,
            SqsSender,
        )

        if transport == "events":
            return EventBridgeSender(self.aws.client("events"), self.aws.published("bus").value)
        url = self.aws.published("queues/submissions").value
        return SqsSender(self.aws.client("sqs"), url)

    def default_namespace(self) -> str:
        """The namespace of the tenant that the caller's messages count as.

        Raises RequestRefusedError if there is none.
        """
        from sluice.client.errors import RequestRefusedError  # noqa: PLC0415 - see the module

        found = self.api.get("identity").get("home")
        if not found:
            raise RequestRefusedError(
                "the document names no namespace and your tenant has none of its own",
                hint="write metadata.namespace, or give --namespace",
            )
        return str(found)
