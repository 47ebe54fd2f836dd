"""Quarantine: rows of the table Nodes below `<cluster>#offerings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.core.clusters.quarantine import Ban, Cause, Offering

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OFFERING = tuple(Offering.__slots__)


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
        return [_ban(from_item(item)) for page in pages for item in page["Items"]]

    def ban(self, cluster: str, ban: Ban) -> None:
        row = {
            "cluster": _key(cluster),
            "instance": ban.offering.key,
            **{name: getattr(ban.offering, name) for name in _OFFERING},
            "cause": ban.cause.value,
            "at": ban.at,
            "until": ban.until,
            "strikes": ban.strikes,
            "message": ban.message,
        }
        self.client.put_item(TableName=self.table, Item=to_item(row))


def _ban(row: Mapping[str, Any]) -> Ban:
    return Ban(
        Offering(**{name: row.get(name, "") for name in _OFFERING}),
        Cause(row.get("cause", Cause.LOST)),
        row["at"],
        row["until"],
        row["strikes"],
        row.get("message", ""),
    )


def _key(cluster: str) -> str:
    return f"{cluster}#offerings"
