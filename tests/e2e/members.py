"""Jobs of the add-ons' kinds whose members find each other as their controller tells them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sluice.core.jobs.table import KINDS

from tests.e2e.stack import BUCKET, NAMESPACE, Document, a_key

# Member 0 listens; the others send it their rank, and all print the sum. How a member knows its
# rank, their number and the address differs: `WHERE`. The argument says what it does then.
MEMBER = """
import json, os, signal, socket, struct, sys, time
env = os.environ
WHERE
def meet():
    if rank == 0:
        server = socket.create_server(("127.0.0.1", port))
        others = [server.accept()[0] for _ in range(world - 1)]
        total = sum(struct.unpack("!i", each.recv(4))[0] for each in others)
        for each in others:
            each.sendall(struct.pack("!i", total))
        return total
    for _ in range(100):
        try:
            link = socket.create_connection((host, port), 1)
            break
        except OSError:
            time.sleep(0.2)
    link.sendall(struct.pack("!i", rank))
    return struct.unpack("!i", link.recv(4))[0]
print(f"member {rank} of {world}: sum {meet()}", flush=True)
"""
THEN = {
    "end": "",
    "last": "time.sleep(300 if rank else 0)",  # the first one's end is the job's
    "wait": "time.sleep(300)",
    "fail": "sys.exit(7) if rank == 1 else time.sleep(300)",
    "count": """
state = env["SLUICE_CHECKPOINT_DIR"] + f"/{rank}"
done = int(open(state).read()) if os.path.exists(state) else 0
print("began at", done, flush=True)
def save(*_):
    open(state, "w").write(str(done))
    print("saved", done, flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
while done < 100:
    time.sleep(0.1)
    done += 1
print("counted", done, flush=True)
""",
}
TORCH = """
rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
"""
TENSORFLOW = """
config = json.loads(env["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
members = cluster["chief"] + cluster["worker"]
rank, world = members.index(cluster[task["type"]][task["index"]]), len(members)
host, _, port = members[0].rpartition(":")
port = int(port)
"""
PADDLE = """
rank, world = int(env["HOSTNAME"].rpartition("-")[2]), int(env["PADDLE_NNODES"])
host, _, port = env["PADDLE_MASTER"].rpartition(":")
port = int(port)
"""
JAX = """
rank, world = int(env["PROCESS_ID"]), int(env["NUM_PROCESSES"])
host, port = env["COORDINATOR_ADDRESS"], int(env["COORDINATOR_PORT"])
"""


@dataclass(frozen=True)
class Sample:
    """One kind of the training-operator; member 0 is the first pod of the first role."""

    replica_specs: str
    container: str
    port: str
    where: str
    roles: Mapping[str, int]
    first_ends_it: bool = True
    """Whether the end of member 0 is the end of the job."""


SAMPLES: Mapping[str, Sample] = {
    "PyTorchJob": Sample(
        "pytorchReplicaSpecs", "pytorch", "pytorchjob-port", TORCH, {"Master": 1, "Worker": 2}
    ),
    "TFJob": Sample(
        "tfReplicaSpecs", "tensorflow", "tfjob-port", TENSORFLOW, {"Chief": 1, "Worker": 2}
    ),
    "XGBoostJob": Sample(
        "xgbReplicaSpecs", "xgboost", "xgboostjob-port", TORCH, {"Master": 1, "Worker": 2}
    ),
    "PaddleJob": Sample(
        "paddleReplicaSpecs", "paddle", "master", PADDLE, {"Worker": 3}, first_ends_it=False
    ),
    "JAXJob": Sample(
        "jaxReplicaSpecs", "jax", "jaxjob-port", JAX, {"Worker": 3}, first_ends_it=False
    ),
}


def roles_of(kind: str) -> dict[str, int]:
    return {role.lower(): count for role, count in SAMPLES[kind].roles.items()}


def a_spec(kind: str, then: str, cpus: Mapping[str, str] = MappingProxyType({})) -> Document:
    """`then` is what each member does once they have met; `cpus` by role, else 1."""
    sample = SAMPLES[kind]
    port = random.randint(20_000, 30_000)
    return {
        sample.replica_specs: {
            role: {
                "replicas": count,
                "restartPolicy": "Never",
                "template": a_pod(sample, then, port, cpus.get(role, "1")),
            }
            for role, count in sample.roles.items()
        }
    }


def a_pod(sample: Sample, then: str, port: int, cpu: str) -> Document:
    code = MEMBER.replace("WHERE", sample.where) + THEN[then]
    return {
        "spec": {
            "containers": [
                {
                    "name": sample.container,
                    "image": "python:3.11",
                    "command": ["python", "-c", code],
                    "ports": [{"name": sample.port, "containerPort": port}],
                    "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
                }
            ]
        }
    }


def a_job_of(kind: str, queue: str, then: str, **cpus: str) -> Document:
    """A plain manifest, as for Kueue."""
    return {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "metadata": {
            "name": "job",
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
            "annotations": a_key(),
        },
        "spec": a_spec(kind, then, cpus),
    }


def a_saving_workload(kind: str, queue: str, **spec: Any) -> Document:
    """A Workload around such a job, whose members count and save where they were."""
    uri = f"s3://{BUCKET}/{queue}/saved"
    volume = {"bucket": BUCKET, "prefix": f"{queue}/saved/"}
    job = {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "spec": a_spec(kind, "count"),
    }
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": "counting", "namespace": NAMESPACE, "annotations": a_key()},
        "spec": {
            "queue": queue,
            "job": job,
            "volumes": [{"name": "saved", "mountPath": "/saved", "s3": volume}],
            "checkpoint": {"mode": "application", "uri": uri},
            **spec,
        },
    }
