"""The eleven Lambdas as data: size, and every right, counted by hand.

A function's environment follows from its rights, so it knows the name of nothing that it may
not use. docs/architecture.md tells what each one does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.core.values.log_keys import LOGS

_CATALOG = ("GetItem", "Query")
_RECORDS = ("GetItem", "BatchGetItem")
_FAULTS = ("BatchWriteItem",)  # what keeps a function from its work, for `sluice doctor`


@dataclass(frozen=True, kw_only=True)
class FunctionShape:
    """One Lambda.

    `tables` maps a table, or `<table>/<index>`, to DynamoDB actions; `objects` maps a prefix of the
    bucket's keys to S3 actions; `sends` and `inspects` name queues, `invokes` other functions.
    """

    name: str
    timeout_seconds: int
    memory_mb: int
    tables: Mapping[str, tuple[str, ...]]
    objects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: tuple[str, ...] = ()
    """Prefixes whose keys it may list."""
    sends: tuple[str, ...] = ()
    inspects: tuple[str, ...] = ()
    invokes: tuple[str, ...] = ()
    empties_dead_letters: bool = False
    """Whether it looks into every dead-letter queue, and takes from it on an operator's word."""
    publishes_events: bool = False
    answers_tasks: bool = False  # ends tasks of Step Functions
    reads_ec2: bool = False  # what machines cost, and whether they still are
    asks_cedana: bool = False  # saves and restores pods by Cedana, with its token
    fetches_references: bool = False
    """Whether it reads the buckets that submissions may refer to."""
    kicks_itself: bool = False
    """A loop on purpose, which Lambda would otherwise stop after some rounds."""
    cluster_group: str | None = None
    """Kubernetes group of its access entries; None: it never talks to a cluster."""


FUNCTIONS = (
    FunctionShape(
        name="submit",
        timeout_seconds=30,
        memory_mb=512,
        tables={
            "Workloads": ("PutItem",),
            "Workloads/inbox": ("Query",),
            "Manifests": ("PutItem",),
            "Catalog": _CATALOG,
            "Nodes": ("GetItem",),
            "Timeline": _FAULTS,
        },
        objects={"manifests/": ("PutObject",), "tokens/": ("PutObject",)},
        sends=("completions",),
        fetches_references=True,
    ),
    FunctionShape(
        name="admit",
        timeout_seconds=20,
        memory_mb=1024,
        tables={
            "Ledgers": ("GetItem", "PutItem", "UpdateItem"),
            "Workloads": (*_RECORDS, "UpdateItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Workloads/listed": ("Query",),
            "Catalog": (*_CATALOG, "ConditionCheckItem"),
            "Timeline": _FAULTS,
            "Nodes": ("GetItem", "Query"),
        },
        objects={"passes/": ("PutObject",)},
        sends=("kicks",),
        kicks_itself=True,
    ),
    FunctionShape(
        name="relay",
        timeout_seconds=60,
        memory_mb=256,
        tables={"Timeline": ("BatchWriteItem",)},
        sends=("kicks", "commands", "provisions"),
        publishes_events=True,
    ),
    FunctionShape(
        name="act",
        timeout_seconds=60,
        memory_mb=512,
        tables={
            "Workloads": (*_RECORDS, "UpdateItem"),
            "Manifests": ("BatchGetItem",),
            "Catalog": _CATALOG,
            "Nodes": ("GetItem", "Query"),
            "Migrations": ("GetItem", "PutItem", "UpdateItem"),
            "Timeline": ("BatchWriteItem",),
        },
        objects={"manifests/": ("GetObject",), "checkpoints/": ("DeleteObject",)},
        invokes=("observe",),
        asks_cedana=True,
        cluster_group="sluice:act",
    ),
    FunctionShape(
        name="observe",
        timeout_seconds=90,
        memory_mb=512,
        tables={
            # It submits what users create in the cluster themselves, as `submit` does.
            "Workloads": (*_RECORDS, "UpdateItem", "PutItem"),
            "Workloads/active": ("Query",),
            "Workloads/inbox": ("Query",),
            "Manifests": ("PutItem",),
            "Catalog": _CATALOG,
            "Nodes": ("GetItem", "PutItem", "UpdateItem", "BatchWriteItem", "Query"),
            "Migrations": ("GetItem", "PutItem", "UpdateItem"),
            "Timeline": ("BatchWriteItem",),
        },
        objects={
            "manifests/": ("PutObject",),
            LOGS: ("PutObject",),
            "checkpoints/": ("DeleteObject",),
        },
        sends=("commands", "interruptions"),
        reads_ec2=True,
        cluster_group="sluice:observe",
    ),
    FunctionShape(
        name="interrupt",
        timeout_seconds=15,
        memory_mb=1769,  # a whole core: it is called rarely, and then all at once
        tables={
            "Workloads": (*_RECORDS, "UpdateItem"),
            "Catalog": _CATALOG,
            "Ledgers": ("GetItem",),
            "Nodes": ("GetItem", "Query", "PutItem"),
            "Migrations": ("GetItem", "PutItem", "UpdateItem"),
            "Timeline": ("BatchWriteItem",),
        },
        reads_ec2=True,
        cluster_group="sluice:interrupt",
    ),
    FunctionShape(
        name="provision",
        timeout_seconds=30,
        memory_mb=512,
        tables={
            "Workloads": (*_RECORDS, "UpdateItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Catalog": _CATALOG,
            "Nodes": ("Query", "PutItem"),
            "Timeline": _FAULTS,
        },
        sends=("commands",),
        reads_ec2=True,
        cluster_group="sluice:provision",
    ),
    FunctionShape(
        name="sweep",
        timeout_seconds=60,
        memory_mb=256,
        tables={
            "Workloads": (*_RECORDS, "UpdateItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Workloads/listed": ("Query",),
            "Ledgers": ("GetItem",),
            "Catalog": _CATALOG,
            "Migrations": ("GetItem",),
            "Timeline": _FAULTS,
        },
        objects={"checkpoints/": ("DeleteObject",)},
        lists=("tokens/", "checkpoints/"),
        sends=("kicks", "completions"),
    ),
    FunctionShape(
        name="complete",
        timeout_seconds=30,
        memory_mb=256,
        tables={"Workloads": ("GetItem",), "Timeline": ("BatchWriteItem",)},
        objects={"tokens/": ("GetObject", "DeleteObject")},
        lists=("tokens/",),
        answers_tasks=True,
    ),
    FunctionShape(
        name="answer",
        timeout_seconds=30,
        memory_mb=256,
        tables={
            "Workloads": ("GetItem", "UpdateItem"),
            "Catalog": _CATALOG,
            "Timeline": _FAULTS,
        },
        sends=("kicks",),
    ),
    FunctionShape(
        name="api",
        timeout_seconds=30,
        memory_mb=512,
        tables={
            "Workloads": (*_RECORDS, "UpdateItem"),
            "Workloads/inbox": ("Query",),
            "Workloads/active": ("Query",),
            "Workloads/listed": ("Query",),
            "Workloads/ran": ("Query",),
            "Ledgers": ("GetItem", "Query", "ConditionCheckItem"),
            "Catalog": (*_CATALOG, "PutItem", "UpdateItem", "DeleteItem"),
            "Manifests": ("BatchGetItem",),
            "Timeline": ("Query", "BatchWriteItem"),
            "Nodes": ("GetItem", "Query", "BatchWriteItem"),
            "Migrations": ("GetItem",),
        },
        objects={
            "manifests/": ("GetObject",),
            LOGS: ("GetObject",),
            "checkpoints/": ("GetObject",),
            "passes/": ("GetObject",),
        },
        lists=(LOGS, "checkpoints/", "passes/"),
        sends=("kicks", "commands", "interruptions"),
        inspects=("submissions", "kicks", "commands", "interruptions", "completions", "answers"),
        invokes=("submit", "admit", "act", "provision", "interrupt", "complete", "answer"),
        empties_dead_letters=True,
        cluster_group="sluice:api",
    ),
)
