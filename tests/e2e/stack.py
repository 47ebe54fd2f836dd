"""What end-to-end tests ask of a running stack, by the doors that users and operators have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import boto3
from sluice.adapters.dynamodb_ledgers import DynamoDBLedgers
from sluice.adapters.dynamodb_workloads import DynamoDBWorkloads
from sluice.adapters.s3_logs import S3Logs
from sluice.core.lifecycle.record import TERMINAL, Workload, phase
from sluice.core.values.identity import workload_id

from local.add_ons import ADD_ONS, kinds_of
from local.apply import ApiServer
from local.endpoints import Endpoints
from local.settings import CLONE, Layout

T = TypeVar("T")
Document = dict[str, Any]
NAMESPACE, BUCKET, SOURCE = "team-blue", "team-blue-data", "blue.pipeline"
KARPENTERS_QUEUE = "karpenter-interruptions"
INSTANCE_SECONDS = 0.5  # from launch to running
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.3
TENANTS: tuple[Document, ...] = (
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "spot"},
        "spec": {"nodeLabels": {"sluice.dev/flavor": "spot"}},
    },
    {
        "apiVersion": "sluice.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "batch-1"},
        "spec": {"flavors": ["spot"], "kinds": kinds_of(ADD_ONS)},
    },
    {
        "apiVersion": "sluice.dev/v1",
        "kind": "Tenant",
        "metadata": {"name": NAMESPACE},
        "spec": {
            "admin": True,
            "principals": ["123456789012"],  # the embedded AWS signs messages with its account
            "namespaces": [NAMESPACE],
            "eventSources": [SOURCE],
            "images": ["docker.io/library/python"],
            "requireDigest": False,
            "buckets": [f"{BUCKET}/*"],
        },
    },
)


def until(
    what: str | Callable[[], str], ready: Callable[[], T], *, seconds: float = PATIENCE_SECONDS
) -> T:
    """The first true answer; fails when patience ends, and then says what it waited for."""
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:.0f} s: {said}")
        time.sleep(POLL_SECONDS)
    return found


@dataclass
class Stack:
    endpoints: Endpoints

    def __post_init__(self) -> None:
        self.state = Path(self.endpoints.state)
        self.published: dict[str, str] = json.loads((self.state / "outputs.json").read_text())
        self.session = boto3.Session(
            self.endpoints.access_key_id,
            self.endpoints.secret_access_key,
            region_name=self.endpoints.region,
        )
        self.kubernetes = ApiServer(Layout(self.state).kubeconfig)
        dynamodb, tables = self.client("dynamodb"), self.published
        self.workloads = DynamoDBWorkloads(dynamodb, tables["tables/workloads"])
        self.ledgers = DynamoDBLedgers(
            dynamodb,
            tables["tables/ledgers"],
            tables["tables/workloads"],
            tables["tables/catalog"],
        )
        self.logs = S3Logs(self.client("s3"), tables["bucket"])

    def client(self, service: str) -> Any:
        return self.session.client(service, endpoint_url=self.endpoints.aws)  # type: ignore[call-overload]

    def sluice(self, *arguments: str, fails: bool | None = False) -> str:
        """Run the command as a user would: its standard output, or its errors if it `fails`.

        With `fails` None its exit code does not matter.
        """
        ran = subprocess.run(
            [Path(sys.executable).with_name("sluice"), *arguments],
            cwd=CLONE,
            env=os.environ | {"SLUICE_STATE": str(self.state)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert fails in {None, bool(ran.returncode)}, f"{arguments}: {ran.stdout}{ran.stderr}"
        return ran.stderr if fails else ran.stdout

    def apply(self, *documents: Document) -> None:
        path = self.state / f"apply-{uuid.uuid4().hex}.yaml"
        path.write_text("\n---\n".join(json.dumps(document) for document in documents))
        self.sluice("apply", "-f", str(path))

    def queue(self, cpu: str, flavors: Sequence[str] = ("spot",), **spec: Any) -> str:
        """A new ClusterQueue with so much CPU a flavor, by default its own root; its LocalQueue."""
        name = f"q-{uuid.uuid4().hex[:8]}"
        resources = [
            {"name": "cpu", "nominalQuota": cpu},
            {"name": "memory", "nominalQuota": "1000Gi"},
        ]
        group = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": flavor, "resources": resources} for flavor in flavors],
        }
        kueue = "kueue.x-k8s.io/v1beta2"
        self.apply(
            {
                "apiVersion": kueue,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
            },
            {
                "apiVersion": kueue,
                "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"clusterQueue": name},
            },
        )
        return name

    def submit(self, *documents: Document) -> list[str]:
        """Send documents through the submissions queue, ten a call; the ids they will have."""
        self.send(*map(json.dumps, documents))
        return list(map(id_of, documents))

    def send(self, *bodies: str) -> list[str]:
        """Put bodies on the submissions queue as they are; the ids of the messages."""
        sqs, queue = self.client("sqs"), self.published["queues/submissions"]

        def batch(first: int) -> list[str]:
            entries = [
                {"Id": str(place), "MessageBody": body}
                for place, body in enumerate(bodies[first : first + 10])
            ]
            answer = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
            assert not answer.get("Failed")
            return [sent["MessageId"] for sent in answer["Successful"]]

        with ThreadPoolExecutor(4) as pool:
            batches = pool.map(batch, range(0, len(bodies), 10))
            return [message for batch_ids in batches for message in batch_ids]

    def get(self, workload: str) -> Workload:
        found = self.workloads.get(workload)
        assert found, f"no record of {workload}"
        return found

    def phase(self, workload: str) -> str:
        found = self.workloads.get(workload)
        return phase(found) if found else "(not recorded)"

    def await_phase(
        self, wanted: str, *ids: str, seconds: float = PATIENCE_SECONDS
    ) -> list[Workload]:
        """The records, once all have the phase; patience begins anew whenever one arrives there.

        Fails at once if one ends in another phase.
        """
        reached, deadline = -1, 0.0
        while True:
            records = self.workloads.get_many(ids)
            there = sum(phase(one) == wanted for one in records)
            if there == len(ids):
                return records
            for one in records:
                wrong = one.state in TERMINAL and phase(one) != wanted
                assert not wrong, f"{one.id} is {phase(one)}: {one.reason or one.result}"
            if there > reached:
                reached, deadline = there, time.monotonic() + seconds
            stuck = Counter(map(self.phase, ids)) if time.monotonic() > deadline else None
            assert not stuck, f"not all {wanted} within {seconds:.0f} s: {stuck}, {ids[:5]}"
            time.sleep(POLL_SECONDS)

    def await_released(self, root: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the ledger of a root is empty."""
        until(f"{root} holds nothing", lambda: not self.ledgers.read(root).usage, seconds=seconds)

    def objects(self, path: str, **parameters: str) -> list[Document]:
        found: list[Document] = self.kubernetes.call("GET", f"{path}?{urlencode(parameters)}")[
            "items"
        ]
        return found

    def pods(self, workload: str) -> list[Document]:
        selector = f"sluice.dev/workload={workload}"
        return self.objects(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)

    def machine_of(self, workload: str) -> tuple[str, str]:
        """Node and instance on which a workload runs.

        The pod of the generation before may still be there, once its processes are proven dead.
        """
        pods = self.pods(workload)
        (pod,) = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        node = pod["spec"]["nodeName"]
        found = self.kubernetes.call("GET", f"/api/v1/nodes/{node}")
        return node, found["spec"]["providerID"].rpartition("/")[2]

    def market(self, path: str, **body: str) -> Any:
        """Ask the embedded EC2 for what no API of AWS offers; with a body, do it."""
        request = urllib.request.Request(
            f"{self.endpoints.ec2}/_market/{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answered:
            return json.load(answered)

    def timeline(self, workload: str) -> list[Document]:
        found: list[Document] = json.loads(self.sluice("events", workload, "-o", "json"))["items"]
        return found

    def jobs(self, workload: str) -> list[Document]:
        selector = f"sluice.dev/workload={workload}"
        return self.objects(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", labelSelector=selector)


def a_workload(
    queue: str, *command: str, cpu: str = "1", name: str = "job", **spec: Any
) -> Document:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": a_key()},
        "spec": {
            "queue": queue,
            "image": "python:3.11",
            "command": list(command),
            "resources": {"cpu": cpu, "memory": "64Mi"},
            **spec,
        },
    }


def a_job(queue: str, *command: str, cpu: str = "1", **spec: Any) -> Document:
    """A plain Job as one would give it to Kueue."""
    container = {
        "name": "main",
        "image": "python:3.11",
        "command": list(command),
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "plain",
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
            "annotations": a_key(),
        },
        "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }


def a_key() -> dict[str, str]:
    return {"sluice.dev/idempotency-key": uuid.uuid4().hex}


def id_of(document: Document) -> str:
    """The id that a document's workload will have, or has."""
    key = document["metadata"]["annotations"]["sluice.dev/idempotency-key"]
    return workload_id(NAMESPACE, key)


def python(code: str) -> Sequence[str]:
    return ("python", "-c", code)


def counter(counts: int) -> Sequence[str]:
    """Counts for a tenth of a second each, with a secret that only this very process knows."""
    return python(
        "import os, time\n"
        "secret = os.urandom(8).hex()\n"
        f"for n in range({counts}):\n"
        "    print('count', n, secret, flush=True)\n"
        "    time.sleep(0.1)\n"
    )
