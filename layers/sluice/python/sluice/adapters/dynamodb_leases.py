"""Leases of observers: rows of the table Nodes that belong to no instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.adapters.attribute_values import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LEASE = "#lease"


@dataclass(frozen=True)
class DynamoDBLeases:
    """`name` is the cluster that is observed."""

    client: DynamoDBClient
    table: str

    def take(self, name: str, owner: str, *, until: int) -> int:
        answer = self.client.update_item(
            TableName=self.table,
            Key=to_item({"cluster": name, "instance": LEASE}),
            UpdateExpression="SET #owner = :owner, #until = :until",
            ExpressionAttributeNames={"#owner": "owner", "#until": "until"},
            ExpressionAttributeValues=to_item({":owner": owner, ":until": until}),
            ReturnValues="ALL_OLD",
        )
        return int(from_item(answer.get("Attributes", {})).get("done", 0))

    def acquire(self, name: str, owner: str, *, now: int, until: int, done: int = 0) -> bool:
        names = {"#owner": "owner", "#until": "until", "#done": "done"}
        values = {":owner": owner, ":until": until, ":now": now, ":done": done}
        try:
            self.client.update_item(
                TableName=self.table,
                Key=to_item({"cluster": name, "instance": LEASE}),
                UpdateExpression="SET #owner = :owner, #until = :until, #done = :done",
                ConditionExpression="attribute_not_exists(#until) OR #until < :now"
                " OR #owner = :owner",
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=to_item(values),
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def expires(self, name: str) -> int:
        """When the lease ends (epoch ms); 0 if there is none."""
        key = to_item({"cluster": name, "instance": LEASE})
        answer = self.client.get_item(TableName=self.table, Key=key)
        return int(from_item(answer.get("Item", {})).get("until", 0))
