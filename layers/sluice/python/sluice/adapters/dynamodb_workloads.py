"""The table Workloads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sluice.adapters.attribute_values import to_item
from sluice.adapters.workload_items import item_of, update_of, workload_of
from sluice.core.lifecycle.indexes import pending_key, place_of
from sluice.core.lifecycle.record import State
from sluice.ports import Created

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from sluice.core.lifecycle.indexes import Place
    from sluice.core.lifecycle.record import Change, Workload

BATCH_GET = 100
PARALLEL = 8


@dataclass(frozen=True)
class DynamoDBWorkloads:
    client: DynamoDBClient
    table: str
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    def get(self, workload_id: str) -> Workload | None:
        key = to_item({"id": workload_id})
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return workload_of(answer["Item"]) if "Item" in answer else None

    def get_many(self, ids: Iterable[str]) -> list[Workload]:
        wanted = list(dict.fromkeys(ids))
        batches = [wanted[at : at + BATCH_GET] for at in range(0, len(wanted), BATCH_GET)]
        read = self.pool.map if len(wanted) > BATCH_GET else map
        found = {workload.id: workload for rows in read(self._batch, batches) for workload in rows}
        return [found[each] for each in wanted if each in found]

    def _batch(self, ids: Sequence[str]) -> list[Workload]:
        found: list[Workload] = []
        keys: Any = [to_item({"id": each}) for each in ids]
        attempt = 0
        while keys:
            request: Any = {self.table: {"Keys": keys, "ConsistentRead": True}}
            answer: Any = self.client.batch_get_item(RequestItems=request)
            found += map(workload_of, answer["Responses"].get(self.table, []))
            keys = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", [])
            if keys:  # throttled: the SDK does not retry what a batch leaves over
                time.sleep(min(0.05 * 2**attempt, 1.0))
                attempt += 1
        return found

    def create(self, workload: Workload) -> Created:
        """A REJECTED record gives way to a corrected submission under the same key."""
        try:
            self.client.put_item(
                TableName=self.table,
                Item=item_of(workload),
                ConditionExpression="attribute_not_exists(id) OR #state = :rejected",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=to_item({":rejected": State.REJECTED}),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as error:
            existing: Any = error.response.get("Item")
            same = workload_of(existing).digest == workload.digest
            return Created.SAME if same else Created.DIFFERENT
        return Created.NEW

    def apply(self, changes: Sequence[Change]) -> list[bool]:
        if len(changes) == 1:
            return [self._apply(changes[0])]
        return list(self.pool.map(self._apply, changes))

    def _apply(self, change: Change) -> bool:
        try:
            self.client.update_item(TableName=self.table, **update_of(change))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def inbox(self, key: str, *, limit: int) -> list[str]:
        return self._query("inbox", "inbox", key, limit=limit)

    def places(self, cq: str, *, limit: int, after: str = "") -> list[Place]:
        items = self._items(
            "inbox", "inbox", pending_key(cq), order="inbox_order", after=after, limit=limit
        )
        return [place_of(item["inbox_order"]["S"]) for item in items]

    def active(self, cluster: str, root: str | None = None) -> list[str]:
        prefix = "" if root is None else f"{root}#"
        return self._query("active", "active", cluster, order="active_order", prefix=prefix)

    def ran(self, queue: str, *, since: str, limit: int) -> list[str]:
        found = self._items("ran", "queue", queue, order="ran", after=since, limit=limit)
        return [item["ran"]["S"] for item in found]

    def listed(self, queue: str, *, since: int, limit: int) -> list[Workload]:
        ids = self._query(
            "listed",
            "queue",
            queue,
            order="listed",
            after=f"{since:013d}",
            limit=limit,
            newest=True,
        )
        return self.get_many(ids)

    def _query(self, index: str, attribute: str, value: str, **narrowed: Any) -> list[str]:
        return [item["id"]["S"] for item in self._items(index, attribute, value, **narrowed)]

    def _items(
        self,
        index: str,
        attribute: str,
        value: str,
        *,
        order: str = "",
        prefix: str = "",
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> list[dict[str, Any]]:
        names, values, condition = {"#k": attribute}, {":k": value}, "#k = :k"
        if prefix:
            names["#o"], values[":o"] = order, prefix
            condition += " AND begins_with(#o, :o)"
        elif after:
            names["#o"], values[":o"] = order, after
            condition += " AND #o >= :o"
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "IndexName": index,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": to_item(values),
            "ScanIndexForward": not newest,
        }
        items: list[dict[str, Any]] = []
        while True:
            if limit:
                arguments["Limit"] = limit - len(items)
            page = self.client.query(**arguments)
            items += page["Items"]
            if "LastEvaluatedKey" not in page or (limit and len(items) >= limit):
                return items
            arguments["ExclusiveStartKey"] = page["LastEvaluatedKey"]
