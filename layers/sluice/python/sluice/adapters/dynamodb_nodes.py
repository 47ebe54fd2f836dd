"""The table Nodes: the inventory of machines, written by `observe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.dynamodb_batches import put_all
from sluice.adapters.dynamodb_leases import LEASE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class DynamoDBNodes:
    client: DynamoDBClient
    table: str

    def put_many(self, cluster: str, nodes: Sequence[Mapping[str, Any]]) -> None:
        put_all(self.client, self.table, [to_item({"cluster": cluster, **node}) for node in nodes])

    def of(self, cluster: str) -> list[Mapping[str, Any]]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#cluster = :cluster",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues=to_item({":cluster": cluster}),
        )
        rows = [from_item(item) for page in pages for item in page["Items"]]
        return [row for row in rows if row["instance"] != LEASE]

    def find(self, cluster: str, instance: str) -> Mapping[str, Any] | None:
        key = to_item({"cluster": cluster, "instance": instance})
        item = self.client.get_item(TableName=self.table, Key=key).get("Item")
        return from_item(item) if item else None
