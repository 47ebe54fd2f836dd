"""Machines that were lost: rows of the table Nodes below `<cluster>#losses`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.adapters.attribute_values import from_item, to_item
from sluice.core.migrations.losses import WINDOW_MS, Loss

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class DynamoDBLosses:
    client: DynamoDBClient
    table: str

    def record(self, cluster: str, loss: Loss) -> None:
        fields = {name: getattr(loss, name) for name in Loss.__slots__}
        row = {"cluster": _key(cluster), **fields, "expires": (loss.at + WINDOW_MS) // 1000}
        try:
            self.client.put_item(
                TableName=self.table,
                Item=to_item(row),
                ConditionExpression="attribute_not_exists(#cluster)",
                ExpressionAttributeNames={"#cluster": "cluster"},
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return  # the first word counts: what was noticed stays noticed

    def of(self, cluster: str) -> list[Loss]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#cluster = :cluster",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues=to_item({":cluster": _key(cluster)}),
        )
        rows = [from_item(item) for page in pages for item in page["Items"]]
        return [Loss(**{name: row[name] for name in Loss.__slots__}) for row in rows]


def _key(cluster: str) -> str:
    return f"{cluster}#losses"
