"""Wake-ups of `observe` by asynchronous invocation, skipped while one is at work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

    from sluice.adapters.dynamodb_leases import DynamoDBLeases
    from sluice.ports import Clock


@dataclass(frozen=True)
class LambdaObservers:
    client: LambdaClient
    function: str
    leases: DynamoDBLeases
    clock: Clock

    def wake(self, cluster: str) -> None:
        if self.leases.expires(cluster) > self.clock.now():
            return
        payload = json.dumps({"cluster": cluster}).encode()
        self.client.invoke(FunctionName=self.function, InvocationType="Event", Payload=payload)
