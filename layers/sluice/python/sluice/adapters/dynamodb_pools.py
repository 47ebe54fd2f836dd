"""The plan of each cluster's NodePools: one row of the table Nodes, below `<cluster>#pools`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.core.clusters.capacity import Closure, PoolPlan
from sluice.core.clusters.machine_sizes import MachineSize
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_ROW = "plan"


@dataclass(frozen=True)
class DynamoDBPools:
    client: DynamoDBClient
    table: str

    def plans(self, cluster: str) -> list[PoolPlan]:
        item = self.client.get_item(TableName=self.table, Key=to_item(_key(cluster))).get("Item")
        return [_plan(row) for row in from_item(item)["pools"]] if item else []

    def put(self, cluster: str, plans: Sequence[PoolPlan]) -> None:
        row = _key(cluster) | {"pools": [_row(each) for each in plans]}
        self.client.put_item(TableName=self.table, Item=to_item(row))


def _key(cluster: str) -> dict[str, Any]:
    return {"cluster": f"{cluster}#pools", "instance": _ROW}


def _row(plan: PoolPlan) -> dict[str, Any]:
    return {name: value for name, value in asdict(plan).items() if value not in (None, (), False)}


def _plan(row: Mapping[str, Any]) -> PoolPlan:
    """Fields of a later version are left out."""
    known = {name: row[name] for name in PoolPlan.__slots__ if name in row}
    for name in ("flavors", "capacity_types", "theirs"):
        known[name] = tuple(row.get(name, ()))
    if closed := row.get("closed"):
        known["closed"] = Closure(
            Reason(closed["reason"]),
            closed["message"],
            closed["until"],
            closed["room"],
            None if closed.get("machines") is None else tuple(closed["machines"]),
        )
    known["largest"] = tuple(MachineSize(**each) for each in row.get("largest", ()))
    return PoolPlan(**known)
