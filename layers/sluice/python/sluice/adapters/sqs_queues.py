"""Kicks, commands and wishes as SQS messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.errors import SluiceError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from sluice.ports import News

BATCH = 10
IDS_PER_COMMAND = 25
MOST_NAMED = 100  # in one kick


@dataclass(frozen=True)
class SQSKicks:
    client: SQSClient
    queue: str

    def kick(self, roots: Iterable[str], news: Mapping[str, News] | None = None) -> None:
        """Each kick has a deduplication id of its own: a swallowed one is a lost wake-up."""
        entries = [
            {
                "Id": str(position),
                "MessageBody": json.dumps({"root": root} | _named((news or {}).get(root))),
                "MessageGroupId": root,
                "MessageDeduplicationId": uuid.uuid4().hex,
            }
            for position, root in enumerate(dict.fromkeys(roots))
        ]
        _send(self.client, self.queue, entries)


def _named(news: News | None) -> dict[str, list[str]]:
    """Too many names are as good as none."""
    if news is None or len(news.queues) + len(news.namespaces) > MOST_NAMED:
        return {}
    return {"queues": sorted(news.queues), "namespaces": sorted(news.namespaces)}


@dataclass(frozen=True)
class SQSCommands:
    client: SQSClient
    queue: str

    def send(self, cluster: str, ids: Sequence[str]) -> None:
        wanted = list(dict.fromkeys(ids))
        groups = [
            wanted[first : first + IDS_PER_COMMAND]
            for first in range(0, len(wanted), IDS_PER_COMMAND)
        ]
        entries = [
            {
                "Id": str(position),
                "MessageBody": json.dumps({"cluster": cluster, "workloads": group}),
                "MessageGroupId": cluster,
            }
            for position, group in enumerate(groups)
        ]
        _send(self.client, self.queue, entries)

    def steer(self, cluster: str) -> None:
        body = json.dumps({"cluster": cluster, "pools": True})
        _send(
            self.client,
            self.queue,
            [{"Id": "0", "MessageBody": body, "MessageGroupId": cluster}],
        )


@dataclass(frozen=True)
class SQSProvisions:
    client: SQSClient
    queue: str

    def ask(self, clusters: Iterable[str]) -> None:
        entries = [
            {"Id": str(position), "MessageBody": json.dumps({"cluster": cluster})}
            for position, cluster in enumerate(dict.fromkeys(clusters))
        ]
        _send(self.client, self.queue, entries)


@dataclass(frozen=True)
class SQSCompletions:
    client: SQSClient
    queue: str

    def look(self, keys: Iterable[str]) -> None:
        entries = [
            {"Id": str(position), "MessageBody": json.dumps({"completion": key})}
            for position, key in enumerate(dict.fromkeys(keys))
        ]
        _send(self.client, self.queue, entries)


@dataclass(frozen=True)
class SQSInterruptions:
    client: SQSClient
    queue: str

    def send(self, envelope: dict[str, Any]) -> None:
        _send(self.client, self.queue, [{"Id": "0", "MessageBody": json.dumps(envelope)}])


def _send(client: SQSClient, queue: str, entries: list[dict[str, Any]]) -> None:
    """Failures hide inside a 200 response, so they are looked for."""
    for first in range(0, len(entries), BATCH):
        answer = client.send_message_batch(QueueUrl=queue, Entries=entries[first : first + BATCH])  # type: ignore[arg-type]
        if failed := answer.get("Failed"):
            raise SluiceError(f"SQS refused {len(failed)} messages: {failed[0].get('Message')}")
