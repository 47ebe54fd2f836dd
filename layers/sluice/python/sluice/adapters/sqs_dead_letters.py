"""Dead-letter queues: look into them, take from them, empty them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.errors import SluiceError
from sluice.ports import DeadLetter

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

BATCH = 10
WAIT_SECONDS = 1  # asks all servers of SQS; without any wait some letters stay unseen
COUNTS: Any = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


@dataclass(frozen=True)
class SQSDeadLetters:
    """`urls`: queue → URL of its dead-letter queue."""

    client: SQSClient
    urls: Mapping[str, str]

    def count(self, queue: str) -> int:
        answer = self.client.get_queue_attributes(
            QueueUrl=self.urls[queue], AttributeNames=list(COUNTS)
        )
        return sum(int(answer["Attributes"][name]) for name in COUNTS)

    def take(self, queue: str, *, hidden_seconds: int) -> list[DeadLetter]:
        answer = self.client.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=BATCH,
            VisibilityTimeout=hidden_seconds,
            WaitTimeSeconds=WAIT_SECONDS,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [
            DeadLetter(
                id=each["MessageId"],
                receipt=each["ReceiptHandle"],
                body=each["Body"],
                attributes={str(name): value for name, value in each.get("Attributes", {}).items()},
                said={
                    name: value.get("StringValue", "")
                    for name, value in each.get("MessageAttributes", {}).items()
                },
            )
            for each in answer.get("Messages", ())
        ]

    def give_back(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """One that cannot be given back comes back by itself when it was hidden long enough."""
        for first in range(0, len(letters), BATCH):
            self.client.change_message_visibility_batch(
                QueueUrl=self.urls[queue],
                Entries=[
                    {"Id": str(n), "ReceiptHandle": each.receipt, "VisibilityTimeout": 0}
                    for n, each in enumerate(letters[first : first + BATCH])
                ],
            )

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Raises SluiceError for those that stay."""
        for first in range(0, len(letters), BATCH):
            answer = self.client.delete_message_batch(
                QueueUrl=self.urls[queue],
                Entries=[
                    {"Id": str(n), "ReceiptHandle": each.receipt}
                    for n, each in enumerate(letters[first : first + BATCH])
                ],
            )
            if failed := answer.get("Failed"):
                raise SluiceError(
                    f"SQS kept {len(failed)} dead letters of {queue} that were dealt with: "
                    f"{failed[0].get('Message')}"
                )

    def purge(self, queue: str) -> None:
        self.client.purge_queue(QueueUrl=self.urls[queue])
