"""Barred offerings: rows of the table Nodes below `<cluster>#offerings`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.adapters.attribute_values import from_item, to_item
from sluice.core.replacement import Ban

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class DynamoDBOfferings:
    client: DynamoDBClient
    table: str

    def banned(self, cluster: str) -> list[Ban]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#cluster = :cluster",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues=to_item({":cluster": _key(cluster)}),
        )
        rows = [from_item(item) for page in pages for item in page["Items"]]
        return [Ban(**{name: row[name] for name in Ban.__slots__}) for row in rows]

    def ban(self, cluster: str, ban: Ban) -> None:
        key = {"cluster": _key(cluster), "instance": f"{ban.instance_type}/{ban.zone}"}
        fields = {name: getattr(ban, name) for name in Ban.__slots__}
        self.client.put_item(TableName=self.table, Item=to_item(key | fields))


def _key(cluster: str) -> str:
    return f"{cluster}#offerings"
