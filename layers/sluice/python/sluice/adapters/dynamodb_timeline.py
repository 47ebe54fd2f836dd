"""The table Timeline: what happened to each workload that its record does not tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.dynamodb_batches import put_all
from sluice.core.lifecycle.happenings import as_line, in_order

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from sluice.core.lifecycle.happenings import Happening

KEPT_SECONDS = 90 * 86_400


@dataclass(frozen=True)
class DynamoDBTimeline:
    client: DynamoDBClient
    table: str

    def append(self, happenings: Sequence[Happening]) -> None:
        self.append_together([each] for each in happenings)

    def append_together(self, groups: Iterable[Sequence[Happening]]) -> None:
        """Keys are made from the happenings themselves, so a repetition overwrites its equal."""
        rows = {}
        for group in groups:
            first = min(group, key=lambda each: (each.at, each.workload.generation))
            at = f"{first.at:013d}#{first.workload.generation:04d}#{first.what}"
            rows[first.workload.id, at] = to_item(
                {
                    "id": first.workload.id,
                    "at": at,
                    "lines": [_stored(each) for each in group],
                    "expires": max(each.at for each in group) // 1000 + KEPT_SECONDS,
                }
            )
        put_all(self.client, self.table, list(rows.values()))

    def of(self, workload_id: str) -> list[Mapping[str, Any]]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#id = :id",
            ExpressionAttributeNames={"#id": "id"},
            ExpressionAttributeValues=to_item({":id": workload_id}),
        )
        rows = [from_item(item) for page in pages for item in page["Items"]]
        return in_order([line for row in rows for line in _lines(row)])


def _stored(happening: Happening) -> Mapping[str, Any]:
    """Without what is empty: one line less than 1 KB after another costs as much as one."""
    return {name: value for name, value in as_line(happening).items() if value or name == "at"}


def _lines(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Of a row; those of older versions hold one line, which their key names."""
    at, generation, what = row["at"].split("#", 2)
    named = {"at": int(at), "generation": int(generation), "what": what}
    for line in row.get("lines", [{**row, **named}]):
        yield {
            "at": line["at"],
            "generation": line.get("generation", 0),
            "what": line["what"],
            "message": line.get("message", ""),
            "detail": line.get("detail", {}),
        }
