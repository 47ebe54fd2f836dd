"""Sends job documents: by SQS in batches, or as EventBridge events."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sluice.client.errors import (
    ControlPlaneUnavailableError,
    RequestRefusedError,
    SluiceClientError,
)
from sluice.core.values.strict_json import MAX_BYTES, JsonError, parse

BATCH_ENTRIES = 10
BATCH_BYTES = 1_048_576
DETAIL_TYPE = "Sluice Workload Submission"
SOURCE = "sluice.cli"
ATTEMPTS = 3
BY_REFERENCE = 'put the document into S3 and submit {"manifestRef": "s3://…", "sha256": "…"}'


@dataclass(frozen=True)
class SubmissionMessage:
    """One message: the id of its workload, the namespace as message group, the document as JSON."""

    id: str
    namespace: str
    body: str

    @property
    def size(self) -> int:
        return len(self.body.encode())


class Sender(Protocol):
    """Sends messages to the control plane and returns once SQS or EventBridge has stored them."""

    def __call__(self, messages: Sequence[SubmissionMessage]) -> None: ...


def too_large(message: SubmissionMessage) -> str:
    """Why a document is too large for a message; empty if it fits."""
    if message.size <= BATCH_BYTES:
        return ""
    return f"{message.size} bytes are more than a message can hold ({BATCH_BYTES})"


def batches(messages: Sequence[SubmissionMessage]) -> Iterator[list[SubmissionMessage]]:
    """Groups of at most ten messages and 1 MiB.

    Raises RequestRefusedError for a larger message.
    """
    batch: list[SubmissionMessage] = []
    size = 0
    for message in messages:
        if why := too_large(message):
            raise RequestRefusedError(f"workload {message.id}: {why}", hint=BY_REFERENCE)
        if batch and (len(batch) == BATCH_ENTRIES or size + message.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.size
    if batch:
        yield batch


@dataclass(frozen=True)
class SqsSender:
    """Sends to the submission queue; the namespace is the message group of SQS fair queues."""

    client: Any
    queue_url: str

    def __call__(self, messages: Sequence[SubmissionMessage]) -> None:
        for batch in batches(messages):
            waiting = batch
            for _ in range(ATTEMPTS):
                waiting = self._send(waiting)
                if not waiting:
                    break
            else:
                raise ControlPlaneUnavailableError(
                    f"SQS did not take {len(waiting)} of {len(messages)} documents",
                    hint="run the command again with the same idempotency keys: nothing runs twice",
                )

    def _send(self, batch: list[SubmissionMessage]) -> list[SubmissionMessage]:
        """Sends one batch. Returns the messages that failed by a fault of SQS."""
        answer = self.client.send_message_batch(
            QueueUrl=self.queue_url,
            Entries=[
                {"Id": str(n), "MessageBody": message.body, "MessageGroupId": message.namespace}
                for n, message in enumerate(batch)
            ],
        )
        failed = answer.get("Failed", [])
        for failure in failed:
            if failure.get("SenderFault"):
                message = batch[int(failure["Id"])]
                raise SluiceClientError(
                    f"SQS refuses workload {message.id}: {failure.get('Message')}"
                )
        return [batch[int(failure["Id"])] for failure in failed]


@dataclass(frozen=True)
class EventBridgeSender:
    """Puts events on the bus, for callers that may not send messages."""

    client: Any
    bus_name: str

    def __call__(self, messages: Sequence[SubmissionMessage]) -> None:
        for batch in batches(messages):
            answer = self.client.put_events(
                Entries=[
                    {
                        "EventBusName": self.bus_name,
                        "Source": SOURCE,
                        "DetailType": DETAIL_TYPE,
                        "Detail": message.body,
                    }
                    for message in batch
                ]
            )
            for message, entry in zip(batch, answer["Entries"], strict=True):
                if "ErrorCode" in entry:
                    cause = entry.get("ErrorMessage", entry["ErrorCode"])
                    raise ControlPlaneUnavailableError(
                        f"EventBridge refuses workload {message.id}: {cause}"
                    )


def encode_message(document: dict[str, Any], workload_id: str, namespace: str) -> SubmissionMessage:
    """A document as the smallest JSON text.

    Raises RequestRefusedError for a document that the control plane could not parse: its record
    would have another id.
    """
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    if len(body.encode()) <= MAX_BYTES:  # what is longer is refused with the others of its batch
        try:
            parse(body)
        except JsonError as error:
            raise RequestRefusedError(f"workload {workload_id}: {error}") from None
    return SubmissionMessage(workload_id, namespace, body)
