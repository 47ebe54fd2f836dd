"""The table Timeline: what happened to each workload, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.dynamodb_batches import put_all
from sluice.core.happenings import rank

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from sluice.core.happenings import Happening

KEPT_SECONDS = 90 * 86_400


@dataclass(frozen=True)
class DynamoDBTimeline:
    client: DynamoDBClient
    table: str

    def append(self, happenings: Sequence[Happening]) -> None:
        """Keys are made from the happening itself, so a repetition overwrites its equal."""
        rows = {}
        for each in happenings:
            workload = each.workload
            at = f"{each.at:013d}#{workload.generation:04d}#{each.what}"
            rows[workload.id, at] = to_item(
                {
                    "id": workload.id,
                    "at": at,
                    "message": each.message,
                    "detail": dict(each.detail),
                    "expires": each.at // 1000 + KEPT_SECONDS,
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
        lines = [_line(from_item(item)) for page in pages for item in page["Items"]]
        return sorted(lines, key=lambda each: (each["at"], each["generation"], rank(each["what"])))


def _line(row: Mapping[str, Any]) -> Mapping[str, Any]:
    at, generation, what = row["at"].split("#", 2)
    return {
        "at": int(at),
        "generation": int(generation),
        "what": what,
        "message": row.get("message", ""),
        "detail": row.get("detail", {}),
    }
