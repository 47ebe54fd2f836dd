"""The nine Lambdas as data: size, and every right, counted by hand.

A function's environment follows from its rights, so it knows the name of nothing that it may
not use. docs/architecture.md tells what each one does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_READ_ITEMS = ("GetItem", "BatchGetItem")
_READ = (*_READ_ITEMS, "Query")


@dataclass(frozen=True, kw_only=True)
class FunctionShape:
    """One Lambda.

    `tables` maps a table, or `<table>/<index>`, to DynamoDB actions; `objects` maps a key pattern
    of the bucket to S3 actions; `sends` and `inspects` name queues, `invokes` other functions.
    """

    name: str
    timeout_seconds: int
    memory_mb: int
    tables: Mapping[str, tuple[str, ...]]
    objects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sends: tuple[str, ...] = ()
    inspects: tuple[str, ...] = ()
    invokes: tuple[str, ...] = ()
    publishes_events: bool = False
    cluster_group: str | None = None
    """Kubernetes group of its access entries; None: it never talks to a cluster."""


FUNCTIONS = (
    FunctionShape(
        name="submit",
        timeout_seconds=30,
        memory_mb=512,
        tables={
            "Workloads": ("PutItem", "ConditionCheckItem"),
            "Manifests": ("PutItem", "ConditionCheckItem"),
            "Catalog": _READ,
        },
        objects={"manifests/*": ("PutObject",)},
    ),
    FunctionShape(
        name="admit",
        timeout_seconds=60,
        memory_mb=1024,
        tables={
            "Ledgers": (*_READ, "PutItem", "UpdateItem", "ConditionCheckItem"),
            "Workloads": (*_READ_ITEMS, "UpdateItem", "ConditionCheckItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Catalog": (*_READ, "ConditionCheckItem"),
        },
    ),
    FunctionShape(
        name="relay",
        timeout_seconds=60,
        memory_mb=256,
        tables={"Timeline": ("PutItem", "BatchWriteItem")},
        sends=("kicks", "commands"),
        publishes_events=True,
    ),
    FunctionShape(
        name="act",
        timeout_seconds=60,
        memory_mb=512,
        tables={
            "Workloads": (*_READ_ITEMS, "UpdateItem"),
            "Manifests": _READ_ITEMS,
            "Catalog": _READ,
        },
        objects={"manifests/*": ("GetObject",)},
        invokes=("observe",),
        cluster_group="sluice:act",
    ),
    FunctionShape(
        name="observe",
        timeout_seconds=90,
        memory_mb=512,
        tables={
            "Workloads": (*_READ_ITEMS, "UpdateItem"),
            "Workloads/active": ("Query",),
            "Catalog": _READ,
            "Nodes": (*_READ, "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"),
            "Migrations": (*_READ, "UpdateItem"),
        },
        objects={"logs/*": ("PutObject",)},
        cluster_group="sluice:observe",
    ),
    FunctionShape(
        name="interrupt",
        timeout_seconds=15,
        memory_mb=512,
        tables={
            "Workloads": (*_READ_ITEMS, "UpdateItem"),
            "Workloads/active": ("Query",),
            "Catalog": _READ,
            "Nodes": (*_READ, "UpdateItem"),
            "Migrations": (*_READ, "PutItem", "UpdateItem"),
        },
        cluster_group="sluice:interrupt",
    ),
    FunctionShape(
        name="provision",
        timeout_seconds=30,
        memory_mb=256,
        tables={
            "Workloads": _READ_ITEMS,
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Ledgers": _READ,
            "Catalog": _READ,
            "Nodes": _READ,
        },
        cluster_group="sluice:provision",
    ),
    FunctionShape(
        name="sweep",
        timeout_seconds=60,
        memory_mb=256,
        tables={
            "Workloads": (*_READ_ITEMS, "UpdateItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Ledgers": _READ,
            "Catalog": _READ,
            "Nodes": _READ,
            "Migrations": (*_READ, "UpdateItem"),
        },
        sends=("kicks", "commands"),
    ),
    FunctionShape(
        name="api",
        timeout_seconds=30,
        memory_mb=512,
        tables={
            "Workloads": (*_READ_ITEMS, "UpdateItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Workloads/listed": ("Query",),
            "Ledgers": _READ,
            "Catalog": (*_READ, "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
            "Manifests": _READ_ITEMS,
            "Timeline": _READ,
            "Nodes": _READ,
            "Migrations": _READ,
        },
        objects={"manifests/*": ("GetObject",), "logs/*": ("GetObject",)},
        sends=("kicks", "commands", "interruptions"),
        inspects=("submissions", "kicks", "commands", "interruptions"),
    ),
)
