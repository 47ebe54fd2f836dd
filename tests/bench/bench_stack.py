"""What Sluice adds to Kubernetes, measured side by side on one machine in one run.

    python -m tests.bench.bench_stack [--jobs 1000] [--quiet-jobs 20]

Brings up an embedded stack with simulated nodes and prints: Jobs per second of the bare API server
(created suspended, un-suspended, run, complete), of Sluice for the same Jobs sent through SQS, the
ratio of the two, the latency from submission to running of single jobs on a quiet stack, and for
both ways what a Job costs: CPU by process, Kubernetes requests, AWS calls. Costs bear other load on
the machine, rates do not. On AWS, the part of the emulated services and the Lambdas is not spent
on the user's machines, hence the second ratio: CPU of the cluster alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles
from typing import Any

import boto3
import yaml
from kubernetes import client as kubernetes
from kubernetes import config as kubernetes_config

from tests.bench.stack_costs import Meter

CLONE = Path(__file__).resolve().parents[2]
SLUICE = Path(sys.executable).with_name("sluice")
QUOTA = CLONE / "examples" / "demo" / "quota.yaml"
NAMESPACE, QUEUE = "team-blue", "research"
THREADS = 16
LOOKED_AT = 25
WARM_UP = 100  # Jobs that start every Lambda that the load will need


@contextlib.contextmanager
def stack() -> Iterator[Path]:
    """A stack of its own with simulated nodes; ends with the measurement."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        os.environ["SLUICE_STATE"] = folder
        try:
            subprocess.run([SLUICE, "local", "up", "--nodes", "simulated"], cwd=CLONE, check=True)
            yield Path(folder)
        finally:
            subprocess.run([SLUICE, "local", "down"], cwd=CLONE, check=False)


def hold_a_node() -> None:
    """A pod that stays, so that both loads find the same machine and neither buys or loses one."""
    kubernetes.CoreV1Api().create_namespaced_pod(
        "default",
        {
            "metadata": {
                "name": "holder",
                "annotations": {"sluice.dev/simulated-duration": "86400"},
            },
            "spec": {
                "containers": [{"name": "main", "image": "python:3.11"}],
                "nodeSelector": {
                    "sluice.dev/flavor": "spot",
                    "karpenter.k8s.aws/instance-cpu": "16",
                },
                "automountServiceAccountToken": False,
            },
        },
    )


def bare_jobs(number: int) -> tuple[float, float]:
    """Jobs per second up to the last completion, from the first un-suspension and from the start.

    Without Sluice. Only the second counts the creations, as the rate through Sluice does.
    """
    batch = kubernetes.BatchV1Api()
    run = uuid.uuid4().hex[:6]
    names = [f"bare-{run}-{i}" for i in range(number)]

    def job(name: str) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": "python:3.11",
            "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
        }
        pod = {
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": {"sluice.dev/flavor": "spot"},
            "automountServiceAccountToken": False,
        }
        metadata = {"name": name, "labels": {"bench": run}}
        spec = {"suspend": True, "template": {"metadata": {"labels": {"bench": run}}, "spec": pod}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: batch.create_namespaced_job("default", job(name)), names))
        created = time.monotonic()
        start = {"spec": {"suspend": False}}
        list(pool.map(lambda name: batch.patch_namespaced_job(name, "default", start), names))
    version = "0"
    while True:
        answer = json.loads(
            batch.list_namespaced_job(
                "default",
                label_selector=f"bench={run}",
                resource_version=version,
                _preload_content=False,
            ).data
        )
        done = sum(bool(each.get("status", {}).get("succeeded")) for each in answer["items"])
        if done == number:
            ended = time.monotonic()
            return number / (ended - created), number / (ended - began)
        time.sleep(1)


class Submitter:
    """Sends jobs through SQS and reads their records."""

    def __init__(self, folder: Path) -> None:
        endpoints = json.loads((folder / "endpoints.json").read_text())
        self.kubeconfig: str = endpoints["kubeconfig"]
        outputs = json.loads((folder / "outputs.json").read_text())
        options = {
            "endpoint_url": endpoints["aws"],
            "region_name": endpoints["region"],
            "aws_access_key_id": endpoints["access_key_id"],
            "aws_secret_access_key": endpoints["secret_access_key"],
        }
        self.sqs = boto3.client("sqs", **options)
        self.queue = outputs["queues/submissions"]
        from sluice.adapters.dynamodb_workloads import DynamoDBWorkloads

        dynamodb = boto3.client("dynamodb", **options)
        self.workloads = DynamoDBWorkloads(dynamodb, outputs["tables/workloads"])

    def submit(self, number: int) -> list[str]:
        """Ids of `number` equal jobs, sent in batches of ten."""
        from sluice.core.values.identity import workload_id

        run = uuid.uuid4().hex[:6]
        keys = [f"bench-{run}-{i}" for i in range(number)]
        batches = [keys[first : first + 10] for first in range(0, number, 10)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._send, batches))
        return [workload_id(NAMESPACE, key) for key in keys]

    def _send(self, keys: list[str]) -> None:
        entries = [{"Id": str(i), "MessageBody": document(key)} for i, key in enumerate(keys)]
        answer = self.sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)  # type: ignore[arg-type]
        assert not answer.get("Failed")

    def ended(self, ids: list[str]) -> list[Any]:
        """The records, once all have ended and given their quota back.

        Looks at a few at a time: reading all of them again and again would be a load of its own.
        """
        done: dict[str, Any] = {}
        while left := [each for each in ids if each not in done][:LOOKED_AT]:
            over = {r.id: r for r in self.workloads.get_many(left) if is_over(r)}
            done |= over
            if len(over) < len(left):
                time.sleep(0.5)
        return [done[each] for each in ids]


def is_over(record: Any) -> bool:
    return record.state in ("FINISHED", "REJECTED", "CANCELLED") and not record.reservation


def document(key: str) -> str:
    spec = {
        "queue": QUEUE,
        "image": "python:3.11",
        "command": ["true"],
        "resources": {"cpu": "50m", "memory": "32Mi"},
    }
    metadata = {"name": key, "namespace": NAMESPACE, "idempotencyKey": key}
    return json.dumps(
        {"apiVersion": "sluice.dev/v1", "kind": "Workload", "metadata": metadata, "spec": spec}
    )


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--quiet-jobs", type=int, default=20)
    chosen = parser.parse_args()
    with stack() as folder:
        assert list(yaml.safe_load_all(QUOTA.read_text()))
        subprocess.run([SLUICE, "apply", "-f", QUOTA], cwd=CLONE, check=True)
        submitter = Submitter(folder)
        kubernetes_config.load_kube_config(submitter.kubeconfig)
        hold_a_node()
        submitter.ended(submitter.submit(WARM_UP))
        meter = Meter(folder)
        start = meter.settled()
        bare, with_creation = bare_jobs(chosen.jobs)
        between = meter.settled()
        bare_costs = between - start
        print(
            f"API server alone: {chosen.jobs} Jobs, {bare:.1f}/s once created,"
            f" {with_creation:.1f}/s with their creation",
            flush=True,
        )
        print(bare_costs.table(chosen.jobs), flush=True)
        began = time.monotonic()
        records = submitter.ended(submitter.submit(chosen.jobs))
        through = chosen.jobs / (time.monotonic() - began)
        costs = meter.settled() - between
        meter.close()
        succeeded = sum(r.result.succeeded for r in records)
        print(
            f"through Sluice:   {succeeded} of {chosen.jobs} succeeded, {through:.1f}/s", flush=True
        )
        print(costs.table(chosen.jobs), flush=True)
        print(
            f"ratio:            {through / bare:.2f}, {through / with_creation:.2f} with creation"
        )
        print(f"CPU of the cluster: {bare_costs.cluster_cpu / costs.cluster_cpu:.2f} (bare/Sluice)")
        waits = []
        for _ in range(chosen.quiet_jobs):
            (record,) = submitter.ended(submitter.submit(1))
            waits.append((record.started_at or record.finished_at) - record.created_at)
        print(
            f"submit → running, quiet stack: p50 {percentile(waits, 50) / 1000:.2f} s,"
            f" p99 {percentile(waits, 99) / 1000:.2f} s ({len(waits)} jobs)"
        )


if __name__ == "__main__":
    main()
