"""The table Catalog: the applied objects, kept in memory while their common version stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.ports import CatalogEdit, CatalogSnapshot, Document

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

META = {"kind": "META", "name": "catalog"}
KINDS = (
    "ResourceFlavor",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "WorkloadPriorityClass",
    "AdmissionCheck",
    "Cluster",
    "Tenant",
    "Budget",
    "SchedulingPolicy",
)


@dataclass
class DynamoDBCatalog:
    """`ledgers` is the table whose versions an edit may have to match."""

    client: DynamoDBClient
    table: str
    ledgers: str = ""
    _kept: CatalogSnapshot = field(default_factory=lambda: CatalogSnapshot(0))

    def snapshot(self) -> CatalogSnapshot:
        """Read again only after a change; an edit during the scan makes the scan start over."""
        version = self._version(META)
        while version != self._kept.version:
            documents: dict[str, dict[str, Document]] = {}
            for kind in KINDS:
                rows = self._rows(kind)
                documents[kind] = {row["name"]: json.loads(row["document"]) for row in rows}
            seen, version = version, self._version(META)
            if seen == version:
                self._kept = CatalogSnapshot(version, documents)
        return self._kept

    def limits(self, root: str) -> int:
        return self._version({"kind": "ROOT", "name": root})

    def edit(self, edit: CatalogEdit) -> bool:
        items: list[dict[str, Any]] = [self._raise(META, expected=edit.based_on)]
        items += [self._raise({"kind": "ROOT", "name": root}) for root in edit.roots]
        items += [
            {"ConditionCheck": self._unmoved(root, version)} for root, version in edit.ledgers
        ]
        for kind, name, document in edit.put:
            row = {"kind": kind, "name": name, "document": json.dumps(document, sort_keys=True)}
            items.append({"Put": {"TableName": self.table, "Item": to_item(row)}})
        items += [
            {"Delete": {"TableName": self.table, "Key": to_item({"kind": kind, "name": name})}}
            for kind, name in edit.remove
        ]
        try:
            self.client.transact_write_items(TransactItems=items)  # type: ignore[arg-type]
        except self.client.exceptions.TransactionCanceledException:
            return False
        return True

    def _rows(self, kind: str) -> Iterator[dict[str, Any]]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            ConsistentRead=True,
            KeyConditionExpression="#kind = :kind",
            ExpressionAttributeNames={"#kind": "kind"},
            ExpressionAttributeValues=to_item({":kind": kind}),
        )
        return (from_item(item) for page in pages for item in page["Items"])

    def _version(self, key: dict[str, str]) -> int:
        answer = self.client.get_item(TableName=self.table, Key=to_item(key), ConsistentRead=True)
        return int(from_item(answer.get("Item", {})).get("version", 0))

    def _raise(self, key: dict[str, str], expected: int | None = None) -> dict[str, Any]:
        update: dict[str, Any] = {
            "TableName": self.table,
            "Key": to_item(key),
            "UpdateExpression": "ADD #version :one",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": to_item({":one": 1}),
        }
        if expected:
            update["ConditionExpression"] = "#version = :expected"
            update["ExpressionAttributeValues"] |= to_item({":expected": expected})
        elif expected == 0:
            update["ConditionExpression"] = "attribute_not_exists(#version)"
        return {"Update": update}

    def _unmoved(self, root: str, version: int) -> dict[str, Any]:
        check: dict[str, Any] = {
            "TableName": self.ledgers,
            "Key": to_item({"root": root, "entry": "LEDGER"}),
            "ExpressionAttributeNames": {"#version": "version"},
            "ConditionExpression": "attribute_not_exists(#version)",
        }
        if version:
            check["ConditionExpression"] = "#version = :version"
            check["ExpressionAttributeValues"] = to_item({":version": version})
        return check
