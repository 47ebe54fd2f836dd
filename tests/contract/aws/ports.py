"""The ports of one deployment, in memory or on an emulated AWS with fresh tables."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from sluice.adapters.dynamodb_catalog import DynamoDBCatalog
from sluice.adapters.dynamodb_faults import DynamoDBFaults
from sluice.adapters.dynamodb_leases import DynamoDBLeases
from sluice.adapters.dynamodb_ledgers import DynamoDBLedgers
from sluice.adapters.dynamodb_manifests import DynamoDBManifests
from sluice.adapters.dynamodb_nodes import DynamoDBNodes
from sluice.adapters.dynamodb_timeline import DynamoDBTimeline
from sluice.adapters.dynamodb_workloads import DynamoDBWorkloads
from sluice.adapters.s3_logs import S3Logs
from sluice.adapters.s3_recordings import S3Recordings
from sluice.ports import (
    Catalog,
    Faults,
    Leases,
    Ledgers,
    LogArchive,
    Manifests,
    Nodes,
    Recordings,
    Timeline,
    Workloads,
)

from tests.fakes import (
    MemoryCatalog,
    MemoryFaults,
    MemoryLeases,
    MemoryLedgers,
    MemoryLogs,
    MemoryManifests,
    MemoryNodes,
    MemoryRecordings,
    MemoryWorkloads,
    RecordedTimeline,
)

# Keys as infra/state.py has them; the end-to-end tests use the deployed tables.
KEYS = {
    "workloads": ("id", ""),
    "ledgers": ("root", "entry"),
    "catalog": ("kind", "name"),
    "manifests": ("id", ""),
    "timeline": ("id", "at"),
    "nodes": ("cluster", "instance"),
}
INDEXES = {
    "inbox": ("inbox", "inbox_order"),
    "active": ("active", "active_order"),
    "listed": ("queue", "listed"),
    "ran": ("queue", "ran"),
}


@dataclass(frozen=True)
class Ports:
    workloads: Workloads
    ledgers: Ledgers
    catalog: Catalog
    manifests: Manifests
    timeline: Timeline
    faults: Faults
    nodes: Nodes
    leases: Leases
    logs: LogArchive
    recordings: Recordings
    bucket: Bucket


@dataclass(frozen=True)
class Bucket:
    """Where submitters keep what their references name."""

    name: str
    objects: dict[str, bytes]
    s3: Any = None

    def put(self, key: str, body: bytes) -> str:
        """The URI of a stored object."""
        uri = f"s3://{self.name}/{key}"
        if self.s3 is None:
            self.objects[uri] = body
        else:
            self.s3.put_object(Bucket=self.name, Key=key, Body=body)
        return uri


def in_memory() -> Ports:
    workloads, catalog, manifests = MemoryWorkloads(), MemoryCatalog(), MemoryManifests()
    ledgers = MemoryLedgers(workloads, catalog)
    catalog.ledgers = ledgers
    return Ports(
        workloads,
        ledgers,
        catalog,
        manifests,
        RecordedTimeline(),
        MemoryFaults(),
        MemoryNodes(),
        MemoryLeases(),
        MemoryLogs(),
        MemoryRecordings(),
        Bucket("bucket", manifests.objects),
    )


def on_aws(dynamodb: Any, s3: Any) -> Ports:
    run = uuid.uuid4().hex[:8]
    table = {name: f"{name}-{run}" for name in KEYS}
    for name, keys in KEYS.items():
        make_table(dynamodb, table[name], keys, INDEXES if name == "workloads" else {})
    bucket = f"bucket-{run}"
    s3.create_bucket(Bucket=bucket)
    return Ports(
        DynamoDBWorkloads(dynamodb, table["workloads"]),
        DynamoDBLedgers(dynamodb, table["ledgers"], table["workloads"], table["catalog"]),
        DynamoDBCatalog(dynamodb, table["catalog"], table["ledgers"]),
        DynamoDBManifests(dynamodb, s3, table["manifests"], bucket),
        DynamoDBTimeline(dynamodb, table["timeline"]),
        DynamoDBFaults(dynamodb, table["timeline"]),
        DynamoDBNodes(dynamodb, table["nodes"]),
        DynamoDBLeases(dynamodb, table["nodes"]),
        S3Logs(s3, bucket),
        S3Recordings(s3, bucket),
        Bucket(bucket, {}, s3),
    )


def make_table(
    dynamodb: Any, name: str, keys: tuple[str, str], indexes: dict[str, tuple[str, str]]
) -> None:
    def schema(pair: tuple[str, str]) -> list[dict[str, str]]:
        kinds = zip(pair, ("HASH", "RANGE"), strict=True)
        return [{"AttributeName": name, "KeyType": kind} for name, kind in kinds if name]

    attributes = {name for pair in (keys, *indexes.values()) for name in pair if name}
    more = [
        {
            "IndexName": index,
            "KeySchema": schema(pair),
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
        for index, pair in indexes.items()
    ]
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=schema(keys),
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in sorted(attributes)
        ],
        **({"GlobalSecondaryIndexes": more} if more else {}),
    )
