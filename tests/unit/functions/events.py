"""Events as AWS sends them, with what varies as arguments."""

from __future__ import annotations

import json
from typing import Any

from sluice.adapters.workload_items import item_of
from sluice.core.lifecycle.record import Workload

REGION = "us-east-1"


def sqs(*bodies: Any, queue: str = "commands", **attributes: str) -> dict[str, Any]:
    """A batch of a standard or FIFO queue; the messages are called m0, m1 and so on."""
    return {
        "Records": [
            {
                "messageId": f"m{number}",
                "receiptHandle": "AQEB",
                "body": body if isinstance(body, str) else json.dumps(body),
                "attributes": {
                    "ApproximateReceiveCount": "1",
                    "SentTimestamp": "1800000000000",
                    "SenderId": "AROATEAM:session",
                    "ApproximateFirstReceiveTimestamp": "1800000000001",
                    **attributes,
                },
                "messageAttributes": {},
                "md5OfBody": "0",
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:{queue}",
                "awsRegion": REGION,
            }
            for number, body in enumerate(bodies)
        ]
    }


def stream(*pairs: tuple[Workload | None, Workload | None]) -> dict[str, Any]:
    """A batch of the Workloads stream: (before, after) of each change."""
    records = []
    for number, (before, after) in enumerate(pairs):
        images: dict[str, Any] = {}
        if before:
            images["OldImage"] = item_of(before)
        if after:
            images["NewImage"] = item_of(after)
        records.append(
            {
                "eventID": f"e{number}",
                "eventName": "MODIFY" if before and after else "INSERT" if after else "REMOVE",
                "eventSource": "aws:dynamodb",
                "awsRegion": REGION,
                "dynamodb": {
                    "ApproximateCreationDateTime": 1_800_000_000.0,
                    "SequenceNumber": str(number),
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                    **images,
                },
            }
        )
    return {"Records": records}
