"""Sends job documents: by SQS in batches, or as EventBridge events."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sluice.core.values.strict_json import MAX_BYTES, JsonError, parse

from cli.errors import CommandError, RefusedError, UnavailableError

BATCH_ENTRIES = 10
BATCH_BYTES = 1_048_576
DETAIL_TYPE = "Sluice Workload Submission"
SOURCE = "sluice.cli"
ATTEMPTS = 3
BY_REFERENCE = 'put the document into S3 and submit {"manifestRef": "s3://…", "sha256": "…"}'


@dataclass(frozen=True)
class Letter:
    """One document on its way: the id that it will have, its group for fairness, its JSON."""

    id: str
    namespace: str
    body: str

    @property
    def size(self) -> int:
        return len(self.body.encode())


class Outbox(Protocol):
    """Hands letters to the control plane; returns once they are stored durably."""

    def __call__(self, letters: Sequence[Letter]) -> None: ...


def too_large(letter: Letter) -> str:
    """Why no message can hold it, if none can."""
    if letter.size <= BATCH_BYTES:
        return ""
    return f"{letter.size} bytes are more than a message can hold ({BATCH_BYTES})"


def batches(letters: Sequence[Letter]) -> Iterator[list[Letter]]:
    """Groups of at most ten letters and 1 MiB. Raises RefusedError for a letter beyond that."""
    batch: list[Letter] = []
    size = 0
    for letter in letters:
        if why := too_large(letter):
            raise RefusedError(f"workload {letter.id}: {why}", hint=BY_REFERENCE)
        if batch and (len(batch) == BATCH_ENTRIES or size + letter.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(letter)
        size += letter.size
    if batch:
        yield batch


@dataclass(frozen=True)
class SqsOutbox:
    """The submission queue; the namespace as message group keeps the queue fair."""

    client: Any
    queue_url: str

    def __call__(self, letters: Sequence[Letter]) -> None:
        for batch in batches(letters):
            waiting = batch
            for _ in range(ATTEMPTS):
                waiting = self._send(waiting)
                if not waiting:
                    break
            else:
                raise UnavailableError(
                    f"SQS did not take {len(waiting)} of {len(letters)} documents",
                    hint="run the command again with the same idempotency keys: nothing runs twice",
                )

    def _send(self, batch: list[Letter]) -> list[Letter]:
        """Sends one batch; returns the letters that SQS did not take through its own fault."""
        answer = self.client.send_message_batch(
            QueueUrl=self.queue_url,
            Entries=[
                {"Id": str(n), "MessageBody": letter.body, "MessageGroupId": letter.namespace}
                for n, letter in enumerate(batch)
            ],
        )
        failed = answer.get("Failed", [])
        for failure in failed:
            if failure.get("SenderFault"):
                letter = batch[int(failure["Id"])]
                raise CommandError(f"SQS refuses workload {letter.id}: {failure.get('Message')}")
        return [batch[int(failure["Id"])] for failure in failed]


@dataclass(frozen=True)
class EventOutbox:
    """The event bus; for callers that may put events but not send messages."""

    client: Any
    bus_name: str

    def __call__(self, letters: Sequence[Letter]) -> None:
        for batch in batches(letters):
            answer = self.client.put_events(
                Entries=[
                    {
                        "EventBusName": self.bus_name,
                        "Source": SOURCE,
                        "DetailType": DETAIL_TYPE,
                        "Detail": letter.body,
                    }
                    for letter in batch
                ]
            )
            for letter, entry in zip(batch, answer["Entries"], strict=True):
                if "ErrorCode" in entry:
                    message = entry.get("ErrorMessage", entry["ErrorCode"])
                    raise UnavailableError(f"EventBridge refuses workload {letter.id}: {message}")


def letter(document: dict[str, Any], workload_id: str, namespace: str) -> Letter:
    """A document as the smallest JSON text.

    Raises RefusedError for one that nobody could read: its record would not have this id.
    """
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    if len(body.encode()) <= MAX_BYTES:  # what is longer is refused with the others of its batch
        try:
            parse(body)
        except JsonError as error:
            raise RefusedError(f"workload {workload_id}: {error}") from None
    return Letter(workload_id, namespace, body)
