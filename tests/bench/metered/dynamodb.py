"""DynamoDB in one process, as far as the adapters use it: units, limits, pages, transactions."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.bench.metered.expressions import Item, condition, update

Answer: TypeAlias = tuple[int, dict[str, Any]]
Place: TypeAlias = tuple[str, str]  # range key, and what makes it unique

KB = 1024
ITEM_BYTES, PAGE_BYTES, TRANSACTION_BYTES = 400 * KB, 1024 * KB, 4096 * KB
BATCH_GET_BYTES = 16 * 1024 * KB
PREFIX = "com.amazonaws.dynamodb.v20120810#"
# Table -> hash, range, indexes; tests/unit/bench holds them against infra/state.py.
TABLES: dict[str, tuple[str, str, dict[str, tuple[str, str]]]] = {
    "Workloads": (
        "id",
        "",
        {
            "inbox": ("inbox", "inbox_order"),
            "active": ("active", "active_order"),
            "listed": ("queue", "listed"),
            "ran": ("queue", "ran"),
        },
    ),
    "Ledgers": ("root", "entry", {}),
    "Catalog": ("kind", "name", {}),
    "Manifests": ("id", "", {}),
    "Timeline": ("id", "at", {}),
    "Nodes": ("cluster", "instance", {}),
    "Migrations": ("id", "", {}),
}


class Refused(Exception):
    def __init__(self, code: str, message: str = "", **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.body = {"__type": PREFIX + code, "message": message, "Message": message, **more}


def value_bytes(value: Mapping[str, Any]) -> int:
    """Bytes of an attribute value as DynamoDB counts them."""
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(inner) if inner.isascii() else len(inner.encode())
        case "N":
            return (len(inner.strip("-0")) + 1) // 2 + 1
        case "M":
            return 3 + sum(len(name) + value_bytes(each) + 1 for name, each in inner.items())
        case "L":
            return 3 + sum(value_bytes(each) + 1 for each in inner)
        case "B":
            return len(inner) * 3 // 4
    return 1


def item_bytes(item: Item) -> int:
    return sum(len(name) + value_bytes(value) for name, value in item.items())


def rounded(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


@dataclass
class Units:
    """Read and write request units, requests by operation, and the largest item written."""

    read: float = 0.0
    write: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)
    largest: int = 0


@dataclass
class StoredTable:
    """`invented` makes items on demand, so that a million of them need no memory."""

    name: str
    rows: dict[tuple[str, str], Item] = field(default_factory=dict)
    order: dict[tuple[str, str], list[Place]] = field(default_factory=dict)
    invented: Callable[[str], Item | None] | None = None

    def key(self, item: Item) -> tuple[str, str]:
        hash_, range_, _ = TABLES[self.name]
        return item[hash_]["S"], item[range_]["S"] if range_ else ""

    def get(self, key: tuple[str, str]) -> Item | None:
        found = self.rows.get(key)
        if found is None and self.invented is not None:
            found = self.invented(key[0])
            if found is not None:
                self.rows[key] = found
        return found

    def places(self, item: Item | None) -> dict[str, tuple[str, Place]]:
        """Where an item stands: index (empty: the table) -> hash and place."""
        if item is None:
            return {}
        _, range_, indexes = TABLES[self.name]
        key = self.key(item)
        found = {"": (key[0], (key[1], ""))} if range_ else {}
        for index, (of_hash, of_range) in indexes.items():
            if of_hash in item and of_range in item:
                found[index] = (item[of_hash]["S"], (item[of_range]["S"], key[0]))
        return found

    def put(self, item: Item | None, key: tuple[str, str]) -> int:
        """Replaces or (None) deletes; the writes that its indexes take."""
        old, new = self.places(self.rows.get(key)), self.places(item)
        writes = 0
        for index in {*old, *new}:
            if (before := old.get(index)) == (after := new.get(index)):
                continue
            if before is not None:
                line = self.order[index, before[0]]
                del line[bisect_left(line, before[1])]
            if after is not None:
                insort(self.order.setdefault((index, after[0]), []), after[1])
            if index:
                writes += (before is not None) + (after is not None)
        if item is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = item
        return writes

    def load(self, items: Iterable[Item]) -> None:
        """Many items at once, at no cost; keys must be new."""
        for item in items:
            self.rows[self.key(item)] = item
            for index, (hash_, place) in self.places(item).items():
                self.order.setdefault((index, hash_), []).append(place)
        for line in self.order.values():
            line.sort()


class MeteredDynamoDB:
    """Answers requests as they are on the wire; `units` counts what they cost."""

    def __init__(self) -> None:
        self.tables = {name: StoredTable(name) for name in TABLES}
        self.units = Units()
        self.changed: list[tuple[Item | None, Item | None]] = []  # of Workloads, as its stream
        self.streaming = False

    def answer(self, operation: str, body: bytes) -> Answer:
        asked = json.loads(body)
        self.units.calls[operation] = self.units.calls.get(operation, 0) + 1
        try:
            answers: dict[str, Callable[[Any], dict[str, Any]]] = {
                "GetItem": self._get,
                "BatchGetItem": self._batch_get,
                "Query": self._query,
                "PutItem": self._put,
                "UpdateItem": self._update,
                "DeleteItem": self._delete,
                "BatchWriteItem": self._batch_write,
                "TransactWriteItems": self._transact,
            }
            return 200, answers[operation](asked)
        except Refused as refusal:
            return 400, refusal.body

    def waits_ms(self, operation: str, body: bytes) -> float:
        """docs/facts: 5 ms a read, 8 ms a conditional write, 20 ms a transaction of 100."""
        if operation == "TransactWriteItems":
            return 8.0 + 12.0 * min(100, body.count(b'"TableName"')) / 100
        return 5.0 if operation in ("GetItem", "BatchGetItem", "Query") else 8.0

    def _get(self, asked: Any) -> dict[str, Any]:
        table = self.tables[asked["TableName"]]
        item = table.get(table.key(asked["Key"]))
        size = item_bytes(item) if item else 0
        self.units.read += rounded(size, 4 * KB) * (1 if asked.get("ConsistentRead") else 0.5)
        return {"Item": _chosen(item, asked)} if item else {}

    def _batch_get(self, asked: Any) -> dict[str, Any]:
        found: dict[str, list[Item]] = {}
        left: dict[str, Any] = {}
        total = count = 0
        for name, wanted in asked["RequestItems"].items():
            table = self.tables[name]
            rows = found.setdefault(name, [])
            for key in wanted["Keys"]:
                count += 1
                item = table.get(table.key(key))
                size = item_bytes(item) if item else 0
                if total + size > BATCH_GET_BYTES:
                    left.setdefault(name, {**wanted, "Keys": []})["Keys"].append(key)
                    continue
                total += size
                units = rounded(size, 4 * KB)
                self.units.read += units * (1 if wanted.get("ConsistentRead") else 0.5)
                if item:
                    rows.append(_chosen(item, wanted))
        if count > 100:
            raise Refused("ValidationException", "Too many items requested")
        return {"Responses": found, "UnprocessedKeys": left}

    def _query(self, asked: Any) -> dict[str, Any]:
        table, index = self.tables[asked["TableName"]], asked.get("IndexName", "")
        hash_, range_, indexes = TABLES[table.name]
        of_hash, of_range = indexes[index] if index else (hash_, range_)
        names, values = (
            asked.get("ExpressionAttributeNames", {}),
            asked["ExpressionAttributeValues"],
        )
        wanted = asked["KeyConditionExpression"]
        hash_value = _hash_value(wanted, names, values, of_hash)
        line = table.order.get((index, hash_value), [])
        matches = condition(wanted)
        forward = asked.get("ScanIndexForward", True)
        start, places = asked.get("ExclusiveStartKey"), iter(line if forward else reversed(line))
        low = _least(wanted, names, values, of_range) if forward else ""
        if start:
            last = (start[of_range]["S"], start[hash_]["S"] if index else "")
            at = bisect_left(line, last)
            places = iter(line[at + 1 :]) if forward else reversed(line[:at])
        elif low:
            places = iter(line[bisect_left(line, (low, "")) :])
        found: list[Item] = []
        size = 0
        more = None
        for place in places:
            keys = {of_hash: {"S": hash_value}, of_range: {"S": place[0]}}
            if index:
                keys[hash_] = {"S": place[1]}
            if not matches(keys, names, values):
                if forward and found:
                    break
                continue
            item = keys if index else table.rows[(hash_value, place[0])]
            if size > PAGE_BYTES or ("Limit" in asked and len(found) >= asked["Limit"]):
                break
            found.append(_chosen(item, asked))
            size += item_bytes(item)
            more = keys
        else:
            more = None
        per_unit = rounded(size, 4 * KB) * (1 if asked.get("ConsistentRead") else 0.5)
        self.units.read += per_unit
        counted = {"Count": len(found), "ScannedCount": len(found)}
        if asked.get("Select") == "COUNT":
            return counted | ({"LastEvaluatedKey": more} if more else {})
        return {"Items": found, **counted} | ({"LastEvaluatedKey": more} if more else {})

    def _put(self, asked: Any) -> dict[str, Any]:
        self._write(asked, put=asked["Item"])
        return {}

    def _update(self, asked: Any) -> dict[str, Any]:
        return {"Attributes": self._write(asked, change=asked["UpdateExpression"])}

    def _delete(self, asked: Any) -> dict[str, Any]:
        self._write(asked)
        return {}

    def _batch_write(self, asked: Any) -> dict[str, Any]:
        for name, writes in asked["RequestItems"].items():
            if len(writes) > 25:
                raise Refused("ValidationException", "Too many items in BatchWriteItem")
            for each in writes:
                if "PutRequest" in each:
                    self._write({"TableName": name}, put=each["PutRequest"]["Item"])
                else:
                    self._write({"TableName": name, "Key": each["DeleteRequest"]["Key"]})
        return {"UnprocessedItems": {}}

    def _write(
        self, asked: Any, *, put: Item | None = None, change: str = "", factor: int = 1
    ) -> Item:
        table = self.tables[asked["TableName"]]
        key = table.key(put if put is not None else asked["Key"])
        old = table.get(key)
        self._check(asked, old)
        new = put
        if change:
            new = deepcopy(old) if old is not None else dict(asked["Key"])
            update(change)(
                new,
                asked.get("ExpressionAttributeNames", {}),
                asked.get("ExpressionAttributeValues", {}),
            )
        self._store(table, key, old, new, factor)
        return new or {}

    def _check(self, asked: Any, old: Item | None) -> None:
        if (wanted := asked.get("ConditionExpression")) is None:
            return
        names, values = (
            asked.get("ExpressionAttributeNames", {}),
            asked.get("ExpressionAttributeValues", {}),
        )
        if condition(wanted)(old or {}, names, values):
            return
        more = {}
        returned = asked.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        if returned and old is not None:
            more = {"Item": old}
        self.units.write += rounded(item_bytes(old) if old else 0, KB)
        raise Refused("ConditionalCheckFailedException", "The conditional request failed", **more)

    def _store(
        self,
        table: StoredTable,
        key: tuple[str, str],
        old: Item | None,
        new: Item | None,
        factor: int,
    ) -> None:
        size = max(item_bytes(each) if each else 0 for each in (old, new))
        if new is not None and item_bytes(new) > ITEM_BYTES:
            raise Refused("ValidationException", "Item size has exceeded the maximum allowed size")
        self.units.largest = max(self.units.largest, size)
        self.units.write += factor * rounded(size, KB) + table.put(new, key)
        if table.name == "Workloads" and self.streaming:
            self.changed.append((old, new))

    def _transact(self, asked: Any) -> dict[str, Any]:
        items = [next(iter(each.items())) for each in asked["TransactItems"]]
        keys = [
            (
                each["TableName"],
                *self.tables[each["TableName"]].key(each.get("Key") or each["Item"]),
            )
            for _, each in items
        ]
        if len(items) > 100 or len(set(keys)) < len(keys):
            raise Refused("ValidationException", "too many items, or one twice")
        if len(json.dumps(asked)) > TRANSACTION_BYTES:
            raise Refused("ValidationException", "Collection size exceeded")
        reasons = [self._reason(each) for _, each in items]
        if any(reason["Code"] != "None" for reason in reasons):
            raise Refused("TransactionCanceledException", "", CancellationReasons=reasons)
        for kind, each in items:
            unchecked = {k: v for k, v in each.items() if k != "ConditionExpression"}
            if kind == "ConditionCheck":
                table = self.tables[each["TableName"]]
                found = table.get(table.key(each["Key"]))
                self.units.write += 2 * rounded(item_bytes(found) if found else 0, KB)
                continue
            put, change = each.get("Item"), each.get("UpdateExpression", "")
            self._write(unchecked, put=put, change=change, factor=2)
        return {}

    def _reason(self, asked: Any) -> dict[str, str]:
        table = self.tables[asked["TableName"]]
        try:
            self._check(asked, table.get(table.key(asked.get("Key") or asked["Item"])))
        except Refused:
            return {"Code": "ConditionalCheckFailed"}
        return {"Code": "None"}


def _chosen(item: Item, asked: Any) -> Item:
    """The attributes of a projection; all without one."""
    if "ProjectionExpression" not in asked:
        return item
    names = asked.get("ExpressionAttributeNames", {})
    wanted = [
        names.get(each.strip(), each.strip()) for each in asked["ProjectionExpression"].split(",")
    ]
    return {name: item[name] for name in wanted if name in item}


def _terms(wanted: str) -> Iterator[list[str]]:
    for term in wanted.replace(" and ", " AND ").split(" AND "):
        yield term.split()


def _hash_value(wanted: str, names: Any, values: Any, of_hash: str) -> str:
    for term in _terms(wanted):
        if len(term) == 3 and term[1] == "=" and names.get(term[0], term[0]) == of_hash:
            return str(values[term[2]]["S"])
    raise ValueError(f"no hash key in {wanted}")


def _least(wanted: str, names: Any, values: Any, of_range: str) -> str:
    """Where a forward query may begin; a hint, since each place is matched."""
    for term in _terms(wanted):
        if len(term) == 3 and names.get(term[0], term[0]) == of_range:
            if term[1] in (">=", ">", "=", "BETWEEN"):
                return str(values[term[2]]["S"])
        elif term[0].startswith("begins_with("):
            return str(values[term[-1].rstrip(")")]["S"])
    return ""
