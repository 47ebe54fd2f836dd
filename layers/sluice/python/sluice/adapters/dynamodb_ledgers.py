"""The table Ledgers, and the one transaction that changes it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.workload_items import update_of
from sluice.core.passes.ledger_size import packed, unpacked
from sluice.core.scheduling.past_usage import PastUsage
from sluice.core.values.plain import from_plain, to_plain
from sluice.ports import Commit, Committed, LedgerState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LEDGER, PASS, BATCH = "LEDGER", "PASS", "BATCH#"
TRANSIENT = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
ATTEMPTS = 6


@dataclass(frozen=True)
class DynamoDBLedgers:
    """`catalog` is the table with the versions of the limits: each commit checks its root's."""

    client: DynamoDBClient
    table: str
    workloads: str
    catalog: str

    def read(self, root: str) -> LedgerState:
        answer = self.client.get_item(
            TableName=self.table, Key=_key(root, LEDGER), ConsistentRead=True
        )
        ledger = from_item(answer.get("Item", {}))
        return LedgerState(
            root,
            ledger.get("version", 0),
            self._limits(root),
            unpacked(ledger.get("usage", {})),
            _accounts(ledger.get("past")),
            ledger.get("spent", {}),
        )

    def commit(self, commit: Commit) -> Committed:
        """A replayed commit fails its version check, so it is harmless."""
        items = self._items(commit)
        for attempt in range(ATTEMPTS):
            try:
                self.client.transact_write_items(TransactItems=items)
            except self.client.exceptions.TransactionCanceledException as error:
                reasons = [
                    reason.get("Code", "None") for reason in error.response["CancellationReasons"]
                ]
                if any(reason == "ConditionalCheckFailed" for reason in reasons):
                    return _refused(commit, reasons)
                if not TRANSIENT & set(reasons):
                    raise
            except self.client.exceptions.TransactionInProgressException:
                pass
            else:
                return Committed(done=True)
            time.sleep(random.uniform(0.01, 0.05) * 2**attempt)  # noqa: S311, jitter only
        return Committed(done=False, moved=True)

    def record_pass(self, root: str, summary: Mapping[str, Any]) -> None:
        item = to_item({"root": root, "entry": PASS, **summary})
        self.client.put_item(TableName=self.table, Item=item)

    def newest_pass(self, root: str) -> Mapping[str, Any]:
        answer = self.client.get_item(TableName=self.table, Key=_key(root, PASS))
        return from_item(answer.get("Item", {}))

    def batches(self, root: str, *, after: int = 0) -> Iterator[Mapping[str, Any]]:
        values = {":root": root, ":first": _batch(after + 1), ":last": f"{BATCH}:"}
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#root = :root AND #entry BETWEEN :first AND :last",
            ExpressionAttributeNames={"#root": "root", "#entry": "entry"},
            ExpressionAttributeValues=to_item(values),
            ConsistentRead=True,
        )
        for page in pages:
            for item in page["Items"]:
                yield from_item(item)

    def _limits(self, root: str) -> int:
        answer = self.client.get_item(
            TableName=self.catalog,
            Key=to_item({"kind": "ROOT", "name": root}),
            ConsistentRead=True,
        )
        return int(from_item(answer.get("Item", {})).get("version", 0))

    def _items(self, commit: Commit) -> Any:
        based_on, root = commit.based_on, commit.based_on.root
        version = based_on.version + 1
        past, values = "REMOVE #past", dict[str, Any]()
        if commit.past is not None:
            past, values = ", #past = :past", {":past": packed(to_plain(commit.past))}
        ledger = {
            "TableName": self.table,
            "Key": _key(root, LEDGER),
            "UpdateExpression": "SET #version = :new, #usage = :usage, #at = :at,"
            f" #spent = :spent {past}",
            "ConditionExpression": "#version = :old"
            if based_on.version
            else "attribute_not_exists(#version)",
            "ExpressionAttributeNames": {
                "#version": "version",
                "#usage": "usage",
                "#at": "at",
                "#past": "past",
                "#spent": "spent",
            },
            "ExpressionAttributeValues": to_item(
                {
                    ":new": version,
                    ":usage": packed(commit.usage),
                    ":at": commit.now,
                    ":spent": commit.spent,
                }
                | values
                | ({":old": based_on.version} if based_on.version else {})
            ),
        }
        limits = {
            "TableName": self.catalog,
            "Key": to_item({"kind": "ROOT", "name": root}),
            "ConditionExpression": "#version = :limits"
            if based_on.limits
            else "attribute_not_exists(#version)",
            "ExpressionAttributeNames": {"#version": "version"},
        }
        if based_on.limits:
            limits["ExpressionAttributeValues"] = to_item({":limits": based_on.limits})
        entry = {"root": root, "entry": _batch(version), "version": version, "at": commit.now}
        audit = {
            "TableName": self.table,
            "Item": to_item({**entry, **commit.audit}),
            "ConditionExpression": "attribute_not_exists(#entry)",
            "ExpressionAttributeNames": {"#entry": "entry"},
        }
        updates = [
            {"Update": {"TableName": self.workloads, **update_of(change)}}
            for change in commit.changes
        ]
        return [{"Update": ledger}, {"ConditionCheck": limits}, {"Put": audit}, *updates]


def _accounts(past: Any) -> dict[str, PastUsage] | None:
    if past is None:
        return None
    accounts = unpacked(past)
    return {queue: from_plain(PastUsage, account, queue) for queue, account in accounts.items()}


def _refused(commit: Commit, reasons: list[str]) -> Committed:
    failed = [reason == "ConditionalCheckFailed" for reason in reasons]
    lost = frozenset(
        change.before.id
        for change, refused in zip(commit.changes, failed[3:], strict=True)
        if refused
    )
    return Committed(done=False, moved=any(failed[:3]), lost=lost)


def _key(root: str, entry: str) -> Any:
    return to_item({"root": root, "entry": entry})


def _batch(version: int) -> str:
    return f"{BATCH}{version:012d}"
