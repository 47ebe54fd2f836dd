"""A control plane of any size for benchmarks, written straight into the metered tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sluice.adapters.attribute_values import to_item
from sluice.adapters.dynamodb_catalog import DynamoDBCatalog
from sluice.adapters.dynamodb_ledgers import DynamoDBLedgers
from sluice.adapters.dynamodb_nodes import DynamoDBNodes
from sluice.adapters.dynamodb_pools import DynamoDBPools
from sluice.adapters.dynamodb_workloads import DynamoDBWorkloads
from sluice.adapters.s3_recordings import S3Recordings
from sluice.adapters.sqs_queues import SQSKicks
from sluice.adapters.workload_items import item_of
from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.indexes import index_keys
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload
from sluice.core.lifecycle.shape_hash import shape_hash
from sluice.usecases.admitting.admit import Admit
from sluice.usecases.fleet import Fleet

from tests.bench.metered.aws import MeteredAWS
from tests.bench.metered.clock import EPOCH_MS
from tests.records import options_of

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
CPU: Final = 1_000  # millicores of every pod
MEMORY: Final = 2**30
UID: Final = "395b1e6a-dec1-4f33-9b6f-b500907d2b2c"
DIGEST: Final = "5f6d1aacbd283ee93f8951b7ab91c787b4f659ccaba0e0070d58d43ebaaae86a"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """ClusterQueues `q-<n>` in the Cohorts `root-<n>`, each with one LocalQueue `ns-<n>/jobs`.

    `cpus` is the quota of each queue. `preemption` is the field of the ClusterQueues.
    """

    queues: int = 1
    roots: int = 1
    namespaces: int = 0  # 0: one for each queue
    clusters: int = 1
    tenants: int = 1
    flavors: int = 1
    cpus: int = 100
    preemption: Mapping[str, str] = field(default_factory=dict)

    def root(self, queue: int) -> str:
        return f"root-{queue % self.roots}"


@dataclass
class Population:
    """The tables' content; `usage` of the ledgers follows from the holders."""

    aws: MeteredAWS
    shape: Shape
    usage: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    hashed: bool = True  # whether records say whom they are equal to, as new ones do

    def __post_init__(self) -> None:
        rows = [*self._objects()]
        items = [
            {"kind": kind, "name": name, "document": json.dumps(document, sort_keys=True)}
            for kind, name, document in rows
        ]
        counters: list[dict[str, Any]] = [{"kind": "META", "name": "catalog", "version": 1}]
        counters += [
            {"kind": "ROOT", "name": f"root-{number}", "version": 1}
            for number in range(self.shape.roots)
        ]
        self._load("Catalog", [*items, *counters])
        clusters = [f"cluster-{number}" for number in range(self.shape.clusters)]
        beats = [
            {"cluster": "#clusters", "instance": each, "seen_at": EPOCH_MS + 86_400_000}
            for each in clusters
        ]
        self._load("Nodes", beats)

    def _load(self, table: str, rows: list[dict[str, Any]]) -> None:
        self.aws.dynamodb.tables[table].load(map(to_item, rows))

    def _objects(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        def kueue(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> Any:
            metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
            key = f"{namespace}/{name}" if namespace else name
            document = {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}
            return kind, key, document

        shape = self.shape
        flavors = [f"flavor-{number}" for number in range(shape.flavors)]
        for flavor in flavors:
            yield kueue("ResourceFlavor", flavor, {"nodeLabels": {"pool": flavor}})
        for number in range(shape.roots):
            yield kueue("Cohort", f"root-{number}", {})
        for number in range(shape.queues):
            quotas = [
                {"name": "cpu", "nominalQuota": str(shape.cpus)},
                {"name": "memory", "nominalQuota": f"{shape.cpus}Gi"},
            ]
            of_flavors = [{"name": flavor, "resources": quotas} for flavor in flavors]
            group = {"coveredResources": ["cpu", "memory"], "flavors": of_flavors}
            spec = {
                "cohortName": shape.root(number),
                "namespaceSelector": {},
                "resourceGroups": [group],
            }
            if shape.preemption:
                spec["preemption"] = dict(shape.preemption)
            yield kueue("ClusterQueue", f"q-{number}", spec)
        for number in range(max(shape.queues, shape.namespaces)):
            queue = f"q-{number % shape.queues}"
            yield kueue("LocalQueue", "jobs", {"clusterQueue": queue}, f"ns-{number}")
        for number in range(shape.clusters):
            yield "Cluster", f"cluster-{number}", _own("Cluster", f"cluster-{number}", {})
        for number in range(shape.tenants):
            spec = {"namespaces": [f"ns-{number}"], "principals": [f"AROA{number:016d}"]}
            yield "Tenant", f"tenant-{number}", _own("Tenant", f"tenant-{number}", spec)

    def workload(self, number: int, queue: int = 0, **changes: Any) -> Workload:
        """A waiting one-pod Job; ids order as their numbers do."""
        made = replace(
            Workload(
                f"w{number:012d}",
                f"nightly-training-{number}",
                f"ns-{queue}",
                f"ns-{queue}/jobs",
                State.PENDING,
                cq=f"q-{queue}",
                root=self.shape.root(queue),
                tenant=f"tenant-{queue}",
                submitted_by=f"AROA{queue:016d}",
                digest=DIGEST,
                created_at=EPOCH_MS - 10_000_000 + number,
                pod_sets=(PodSet("main", 1, {"memory": MEMORY, "cpu": CPU}),),
                options=options_of({"security": {"level": "restricted"}}),
            ),
            **changes,
        )
        waiting = made.state is State.PENDING
        return replace(made, shape_hash=shape_hash(made)) if waiting and self.hashed else made

    def wait(self, count: int, queue: int = 0, *, first: int = 0, **changes: Any) -> None:
        """So many waiting workloads; records are made when they are read."""
        table = self.aws.dynamodb.tables["Workloads"]
        example = self.workload(first, queue, **changes)
        order, numbers = index_keys(example)["inbox_order"], range(first, first + count)
        line = table.order.setdefault(("inbox", f"P#q-{queue}"), [])
        inverted, _, rest = order.partition("#")
        tail = rest.split("#", 2)[2]
        line += [
            (f"{inverted}#{EPOCH_MS - 10_000_000 + n:013d}#w{n:012d}#{tail}", f"w{n:012d}")
            for n in numbers
        ]
        line.sort()
        older, span = table.invented, (first, first + count)

        def invented(key: str) -> Any:
            number = int(key[1:])
            if span[0] <= number < span[1]:
                return item_of(self.workload(number, queue, **changes))
            return older(key) if older is not None else None

        table.invented = invented

    def hold(
        self, count: int, queue: int = 0, *, first: int, flavor: str = "flavor-0", **changes: Any
    ) -> list[str]:
        """So many running workloads, counted in the ledger; their ids."""
        cluster = f"cluster-{queue % self.shape.clusters}"
        assigned = (PodSetAssignment("main", 1, {"cpu": flavor, "memory": flavor}),)
        reservation = Reservation(0, f"q-{queue}", cluster, EPOCH_MS - 600_000, assigned)
        running: dict[str, Any] = {
            "state": State.DISPATCHED,
            "reservation": reservation,
            "cluster": cluster,
            "uid": UID,
            "admitted_at": EPOCH_MS - 600_000,
            "dispatched_at": EPOCH_MS - 599_000,
            "started_at": EPOCH_MS - 590_000,
            "placed": f"{cluster}: possible",
        }
        example = self.workload(first, queue, **(running | changes))
        base = item_of(example)
        ids = [f"w{number:012d}" for number in range(first, first + count)]
        items = []
        for number, name in enumerate(ids, first):
            created = EPOCH_MS - 10_000_000 + number
            own: dict[str, Any] = {
                "id": name,
                "name": f"nightly-training-{number}",
                "created_at": created,
                "listed": f"{created:013d}#{name}",
            }
            if "active" in base:
                own["active_order"] = f"{example.root}#{name}"
            if "inbox" in base:
                inverted = base["inbox_order"]["S"].partition("#")[0]
                own["inbox_order"] = f"{inverted}#{created:013d}#{name}"
            items.append(base | to_item(own))
        self.aws.dynamodb.tables["Workloads"].load(items)
        cells = self.usage.setdefault(example.root, {}).setdefault(f"q-{queue}", {})
        for cell, amount in ((f"{flavor}|cpu", CPU), (f"{flavor}|memory", MEMORY)):
            cells[cell] = cells.get(cell, 0) + count * amount
        return ids

    def end(self, count: int, queue: int = 0, *, first: int) -> list[str]:
        """So many that have finished and still hold their quota."""
        result = {"succeeded": True, "reason": "CompletionsReached", "message": ""}
        return self.hold(
            count, queue, first=first, state=State.FINISHED, result=result, finished_at=EPOCH_MS
        )

    def count(self) -> None:
        """Writes the ledgers that the holders add up to."""
        rows = [
            {"root": root, "entry": "LEDGER", "version": 1, "usage": usage, "at": EPOCH_MS}
            for root, usage in self.usage.items()
        ]
        table = self.aws.dynamodb.tables["Ledgers"]
        for row in map(to_item, rows):
            table.put(row, table.key(row))

    def machines(self, count: int, cluster: str = "cluster-0") -> None:
        rows = [
            {
                "cluster": cluster,
                "instance": f"i-{number:017x}",
                "node": f"ip-10-0-{number // 256}-{number % 256}.ec2.internal",
                "type": "m7i.4xlarge",
                "zone": "eu-central-1a",
                "capacity_type": "spot",
                "nodepool": "flavor-0",
                "created": EPOCH_MS,
                "allocatable": {"cpu": "15890m", "memory": "58Gi", "pods": "234"},
                "requested": {"cpu": "8000m", "memory": "8Gi"},
                "ready": True,
                "seen_at": EPOCH_MS + 86_400_000,
                "usd_per_hour": 0.31,
            }
            for number in range(count)
        ]
        self._load("Nodes", rows)


def _own(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def workloads(aws: MeteredAWS) -> DynamoDBWorkloads:
    return DynamoDBWorkloads(aws.client("dynamodb"), "Workloads", aws.pool())


def catalog(aws: MeteredAWS) -> DynamoDBCatalog:
    return DynamoDBCatalog(aws.client("dynamodb"), "Catalog", "Ledgers")


def ledgers(aws: MeteredAWS) -> DynamoDBLedgers:
    return DynamoDBLedgers(aws.client("dynamodb"), "Ledgers", "Workloads", "Catalog")


def kicks(aws: MeteredAWS) -> SQSKicks:
    return SQSKicks(aws.client("sqs"), "https://sqs.invalid/kicks")


def admit(aws: MeteredAWS, *, recording: bool = True) -> Admit:
    """As bootstrap.admit wires it."""
    dynamodb = aws.client("dynamodb")
    return Admit(
        workloads=workloads(aws),
        ledgers=ledgers(aws),
        catalog=catalog(aws),
        kicks=kicks(aws),
        clock=aws.clock,
        pools=DynamoDBPools(dynamodb, "Nodes"),
        fleet=Fleet(nodes=DynamoDBNodes(dynamodb, "Nodes"), clock=aws.clock),
        recordings=S3Recordings(aws.client("s3"), "bucket") if recording else None,
        pool=aws.pool(),
    )
