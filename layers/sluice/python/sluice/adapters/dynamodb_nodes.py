"""The table Nodes: the inventory of machines, written by `observe`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.dynamodb_batches import put_all
from sluice.adapters.dynamodb_leases import LEASE
from sluice.core.clusters.inventory import as_counted
from sluice.core.lifecycle.inventory_row import Heartbeat, InventoryRow, MachineTotals
from sluice.core.values.plain import from_stored, to_plain

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


HEARTBEATS = "#clusters"  # the key below which each cluster has a row
TOTALS = "#totals"  # likewise, of what its machines add up to


@dataclass(frozen=True)
class DynamoDBNodes:
    client: DynamoDBClient
    table: str

    def put_many(self, cluster: str, nodes: Sequence[InventoryRow]) -> None:
        put_all(self.client, self.table, [_item(cluster, node) for node in nodes])

    def put_heartbeat(self, heartbeat: Heartbeat) -> None:
        put_all(self.client, self.table, [_item(HEARTBEATS, heartbeat)])

    def of(self, cluster: str) -> list[InventoryRow]:
        return as_counted([from_stored(InventoryRow, row) for row in self._rows(cluster)])

    def heartbeats(self) -> list[Heartbeat]:
        return [from_stored(Heartbeat, row) for row in self._rows(HEARTBEATS)]

    def put_totals(self, totals: MachineTotals) -> None:
        put_all(self.client, self.table, [_item(TOTALS, totals)])

    def totals(self) -> list[MachineTotals]:
        return [from_stored(MachineTotals, row) for row in self._rows(TOTALS)]

    def _rows(self, cluster: str) -> list[dict[str, Any]]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#cluster = :cluster",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues=to_item({":cluster": cluster}),
        )
        rows = [from_item(item) for page in pages for item in page["Items"]]
        return [row for row in rows if row["instance"] != LEASE]

    def find(self, cluster: str, instance: str) -> InventoryRow | None:
        key = to_item({"cluster": cluster, "instance": instance})
        item = self.client.get_item(TableName=self.table, Key=key).get("Item")
        return from_stored(InventoryRow, from_item(item)) if item else None


def _item(cluster: str, row: InventoryRow | Heartbeat | MachineTotals) -> dict[str, Any]:
    return to_item({"cluster": cluster, **to_plain(row)})
