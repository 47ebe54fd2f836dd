"""A cluster of any size behind the real adapters: objects and records are made as they are asked.

Pods, Jobs and nodes have the fields that API servers give (managed fields, environment, volumes,
images), about 7, 5 and 9 kB of JSON. Nothing is kept, so what a process holds is what it kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sluice.adapters.dynamodb_workloads import DynamoDBWorkloads
from sluice.adapters.kubernetes_cluster import KubernetesCluster
from sluice.adapters.workload_items import item_of
from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.inventory_row import Heartbeat, InventoryRow, MachineTotals
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload

from tests.fakes import MemoryNodes

CLUSTER, NAMESPACE, ROOT = "large", "team-blue", "research"
STARTED_MS = 1_800_000_000_000
STAMP = "2027-01-15T08:00:00Z"
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PAGE_BYTES = 1_000_000  # of a query of DynamoDB
_INDEX_BYTES = 100  # of one entry of an index of keys


def id_of(number: int) -> str:
    text = ""
    for _ in range(13):
        number, letter = divmod(number, 32)
        text = _LETTERS[letter] + text
    return text


def number_of(workload_id: str) -> int:
    number = 0
    for letter in workload_id:
        number = 32 * number + _LETTERS.index(letter)
    return number


def _managed(names: Iterable[str]) -> list[dict[str, Any]]:
    fields = {f"f:{name}": {".": {}, f'k:{{"name":"{name}"}}': {"f:value": {}}} for name in names}
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": STAMP,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": fields, "f:status": {"f:conditions": {}, "f:phase": {}}},
        }
        for manager in ("kube-controller-manager", "kubelet")
    ]


def _labels(number: int) -> dict[str, str]:
    return {
        "sluice.dev/workload": id_of(number),
        "sluice.dev/generation": "0",
        "sluice.dev/queue": "research",
        "sluice.dev/managed": "true",
        "app.kubernetes.io/name": "training",
        "team": "blue",
    }


def _container() -> dict[str, Any]:
    return {
        "name": "main",
        "image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/blue/train@sha256:" + "a" * 64,
        "command": ["python", "-m", "train"],
        "args": [f"--option-{each}=value-of-{each}" for each in range(12)],
        "env": [{"name": f"VARIABLE_{each}", "value": f"value of {each}"} for each in range(24)],
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        "volumeMounts": [
            {"name": f"volume-{each}", "mountPath": f"/mnt/{each}"} for each in range(4)
        ],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }


def _pod_spec() -> dict[str, Any]:
    return {
        "containers": [_container()],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 90,
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "nodeSelector": {"karpenter.sh/nodepool": "spot", "kubernetes.io/arch": "amd64"},
        "tolerations": [
            {"key": f"taint-{each}", "operator": "Exists", "effect": "NoSchedule"}
            for each in range(4)
        ],
        "volumes": [
            {"name": f"volume-{each}", "emptyDir": {"sizeLimit": "1Gi"}} for each in range(4)
        ],
    }


def job(number: int) -> dict[str, Any]:
    name = f"w-{id_of(number)}-g0"
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": STAMP,
            "labels": _labels(number),
            "annotations": {"sluice.dev/name": f"train-{number}"},
            "managedFields": _managed(f"spec-{each}" for each in range(8)),
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "suspend": False,
            "ttlSecondsAfterFinished": 3600,
            "podReplacementPolicy": "Failed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": str(number)}},
            "template": {"metadata": {"labels": _labels(number)}, "spec": _pod_spec()},
        },
        "status": {"active": 1, "ready": 1, "startTime": STAMP, "uncountedTerminatedPods": {}},
    }


def pod(number: int, nodes: int) -> dict[str, Any]:
    node, name = f"node-{number % max(1, nodes)}", f"w-{id_of(number)}-g0-abcde"
    state = {"running": {"startedAt": STAMP}}
    return {
        "metadata": {
            "name": name,
            "generateName": f"w-{id_of(number)}-g0-",
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-4000-9000-{number:012d}",
            "resourceVersion": str(2000 + number),
            "creationTimestamp": STAMP,
            "labels": _labels(number) | {"batch.kubernetes.io/job-name": name[:-6]},
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name[:-6], "controller": True}
            ],
            "managedFields": _managed(f"field-{each}" for each in range(12)),
        },
        "spec": _pod_spec() | {"nodeName": node},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "qosClass": "Burstable",
            "startTime": STAMP,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": STAMP}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "training",
                    "imageID": "sha256:" + "b" * 64,
                    "containerID": "containerd://" + "c" * 64,
                    "ready": True,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        },
    }


def node(number: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"node-{number}",
            "uid": f"node-{number}",
            "creationTimestamp": STAMP,
            "labels": {
                "node.kubernetes.io/instance-type": "m5.4xlarge",
                "topology.kubernetes.io/zone": "eu-west-1a",
                "karpenter.sh/capacity-type": "spot",
                "karpenter.sh/nodepool": "spot",
            },
            "managedFields": _managed(f"field-{each}" for each in range(8)),
        },
        "spec": {"providerID": f"aws:///eu-west-1a/i-{number:017d}"},
        "status": {
            "allocatable": {"cpu": "15890m", "memory": "60Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STAMP}],
            "images": [
                {"names": [f"repository/image-{each}@sha256:" + "d" * 64], "sizeBytes": 10**8}
                for each in range(50)
            ],
        },
    }


@dataclass
class _Answer:
    data: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def read1(self, _: int) -> bytes:
        return b""

    def release_conn(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class GeneratedAPI:
    """Stands where the connection pool of KubernetesCluster is; lists by pages, as asked."""

    jobs: int
    nodes: int
    calls: Counter[str] = field(default_factory=Counter)
    sent: int = 0

    def request(self, method: str, url: str, **_: Any) -> _Answer:
        parts = urlsplit(url)
        query = {name: found[0] for name, found in parse_qs(parts.query).items()}
        plural = parts.path.rpartition("/")[2]
        self.calls[f"{method} {'watch ' if 'watch' in query else ''}{plural}"] += 1
        if "watch" in query or method != "GET":
            return _Answer(b"{}")
        selector = query.get("labelSelector", "")
        total = {"jobs": self.jobs, "pods": self.jobs, "nodes": self.nodes}.get(plural, 0)
        if "placeholder" in selector:
            total = 0
        first, size = int(query.get("continue", 0)), int(query.get("limit", 500))
        last = min(first + size, total)
        items = ",".join(json.dumps(self._object(plural, each)) for each in range(first, last))
        more = str(last) if last < total else ""
        text = (
            f'{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"9000",'
            f'"continue":"{more}"}},"items":[{items}]}}'
        )
        self.sent += len(text)
        return _Answer(text.encode())

    def clear(self) -> None: ...

    def _object(self, plural: str, number: int) -> dict[str, Any]:
        if plural == "jobs":
            return job(number)
        return pod(number, self.nodes) if plural == "pods" else node(number)

    def cluster(self, _: str = "") -> KubernetesCluster:
        adapter = KubernetesCluster("https://127.0.0.1:1", "", lambda: "token")
        adapter._http = self  # type: ignore[assignment]
        return adapter


def record(number: int) -> Workload:
    """A workload that has been running for a while."""
    assigned = PodSetAssignment("main", 1, {"cpu": "spot", "memory": "spot"})
    return Workload(
        id_of(number),
        f"train-{number}",
        NAMESPACE,
        f"{NAMESPACE}/research",
        State.DISPATCHED,
        cq="research",
        root=ROOT,
        tenant="blue",
        digest="e" * 64,
        created_at=STARTED_MS,
        pod_sets=(PodSet("main", 1, {"cpu": 1000, "memory": 2 << 30}),),
        reservation=Reservation(0, "research", CLUSTER, STARTED_MS, (assigned,)),
        cluster=CLUSTER,
        uid=f"00000000-0000-4000-8000-{number:012d}",
        admitted_at=STARTED_MS,
        dispatched_at=STARTED_MS,
        started_at=STARTED_MS,
    )


class GeneratedTable:
    """The client of DynamoDB for a table of `jobs` running workloads; counts calls and units."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.calls: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        self._item = item_of(record(0))

    def workloads(self) -> DynamoDBWorkloads:
        client: Any = self
        return DynamoDBWorkloads(client, "workloads")

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        self.calls["BatchGetItem"] += 1
        keys = request["RequestItems"]["workloads"]["Keys"]
        self.units["read"] += len(keys)
        return {"Responses": {"workloads": list(self._items(keys))}}

    def _items(self, keys: list[Any]) -> Iterator[dict[str, Any]]:
        for key in keys:
            number = number_of(key["id"]["S"])
            if number < self.jobs:
                uid = {"S": f"00000000-0000-4000-8000-{number:012d}"}
                yield self._item | {"id": key["id"], "uid": uid}

    def query(self, **request: Any) -> dict[str, Any]:
        self.calls["Query"] += 1
        start = request.get("ExclusiveStartKey")
        first = number_of(start["id"]["S"]) + 1 if start else 0
        size = min(request.get("Limit", self.jobs), _PAGE_BYTES // _INDEX_BYTES)
        last = min(self.jobs, first + size)
        self.units["read"] += -(-(last - first) * _INDEX_BYTES // 8192)
        items = [{"id": {"S": id_of(each)}} for each in range(first, last)]
        more = {"LastEvaluatedKey": {"id": {"S": id_of(last - 1)}}} if last < self.jobs else {}
        return {"Items": items, **more}

    def update_item(self, **_: Any) -> dict[str, Any]:
        self.calls["UpdateItem"] += 1
        self.units["write"] += 1
        return {}


@dataclass
class CountedNodes(MemoryNodes):
    """The table Nodes, with its units of 600 bytes a row."""

    units: Counter[str] = field(default_factory=Counter)

    def put_many(self, cluster: str, nodes: Sequence[InventoryRow]) -> None:
        self.units["write"] += len(nodes)
        super().put_many(cluster, nodes)

    def put_heartbeat(self, heartbeat: Heartbeat) -> None:
        self.units["write"] += 1
        super().put_heartbeat(heartbeat)

    def put_totals(self, totals: MachineTotals) -> None:
        self.units["write"] += 1
        super().put_totals(totals)

    def of(self, cluster: str) -> list[InventoryRow]:
        found = super().of(cluster)
        self.units["read"] += -(-len(found) * 600 // 8192)
        return found
