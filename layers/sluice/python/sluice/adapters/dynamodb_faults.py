"""Faults of functions: rows of the table Timeline that belong to no workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.dynamodb_batches import put_all
from sluice.core.lifecycle.faults import Fault

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

FAULTS = "#faults"
KEPT_SECONDS = 86_400


@dataclass(frozen=True)
class DynamoDBFaults:
    client: DynamoDBClient
    table: str

    def note(self, fault: Fault) -> None:
        row = {
            "id": FAULTS,
            "at": f"{fault.function}/{fault.subject}",
            "code": fault.code,
            "message": fault.message,
            "noted": fault.at,
            "expires": fault.at // 1000 + KEPT_SECONDS,
        }
        put_all(self.client, self.table, [to_item(row)])

    def noted(self) -> list[Fault]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#id = :id",
            ExpressionAttributeNames={"#id": "id"},
            ExpressionAttributeValues=to_item({":id": FAULTS}),
        )
        rows = [from_item(item) for page in pages for item in page["Items"]]
        return [_fault(row) for row in rows]


def _fault(row: Mapping[str, Any]) -> Fault:
    function, _, subject = row["at"].partition("/")
    return Fault(function, subject, row["code"], row["message"], row["noted"])
