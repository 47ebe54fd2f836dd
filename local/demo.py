"""The main job, told and checked: quota, jobs through SQS, nodes by Karpenter, a spot reclaim.

    python -m local.demo [--keep]

Runs the commands that a user would type, prints them, and checks what they claim against the
cluster and S3. Exit code 0 means that every check held; otherwise one line says which did not.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
from kubernetes import client as kubernetes
from kubernetes import config as kubernetes_config

from local.endpoints import Endpoints
from local.settings import CLONE, Layout, default_state

SLUICE = Path(sys.executable).with_name("sluice")
DEMO = CLONE / "examples" / "demo"
BUCKET, NAMESPACE = "team-blue-data", "team-blue"
PARTS, LAST = 3, 192_000_000
SPOT_LAST, HEAD_START_SECONDS = 120_000_000, 10
PATIENCE_SECONDS = 600
BEGAN = time.monotonic()


class DemoError(Exception):
    """A claim of the demo did not hold."""


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", flush=True)


def sluice(*arguments: str, show: bool = True) -> str:
    """Run the command as a user would; its output, after printing both."""
    if show:
        print(f"\n$ sluice {' '.join(arguments)}", flush=True)
    ran = subprocess.run(
        [SLUICE, *arguments],
        cwd=CLONE,
        text=True,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        check=False,
    )
    if show and ran.stdout:
        print(ran.stdout.rstrip(), flush=True)
    if ran.returncode:
        command = f"sluice {' '.join(arguments)}"
        raise DemoError(f"`{command}` ended with {ran.returncode}: {(ran.stderr or '').strip()}")
    return ran.stdout


def answer(*arguments: str) -> Any:
    return json.loads(sluice(*arguments, "-o", "json", show=False))


def check(claim: str, *, holds: bool, found: object = "") -> None:
    if not holds:
        raise DemoError(f"{claim}: not so{f', found {found}' if found != '' else ''}")
    say(f"✓ {claim}")


def until(what: str, ready: Callable[[], Any]) -> Any:
    """The first true answer of `ready`; raises DemoError when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.3)
    raise DemoError(
        f"{what} did not happen within {PATIENCE_SECONDS} s; see `sluice local status` and"
        " `sluice local logs aws`"
    )


class Cluster:
    """What the real API server says, asked directly: the demo's witness."""

    def __init__(self, kubeconfig: str) -> None:
        kubernetes_config.load_kube_config(kubeconfig)
        self.core, self.batch = kubernetes.CoreV1Api(), kubernetes.BatchV1Api()

    def pods(self, workload: str) -> list[Any]:
        selector = f"sluice.dev/workload={workload}"
        found: list[Any] = self.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
        return found

    def instance(self, node: str) -> str:
        """The EC2 instance behind a node."""
        return str(self.core.read_node(node).spec.provider_id).rpartition("/")[2]

    def nodes(self) -> set[str]:
        return {node.metadata.name for node in self.core.list_node().items}


def mertens(most: int) -> int:
    """M(most) by the recursion M(n) = 1 − Σ M(⌊n/k⌋): another way than the jobs', as a check."""
    root = round(most ** (2 / 3)) + 1
    moebius = [1] * (root + 1)
    composite = bytearray(root + 1)
    for prime in range(2, root + 1):
        if composite[prime]:
            continue
        for multiple in range(prime, root + 1, prime):
            composite[multiple] = multiple > prime
            moebius[multiple] = -moebius[multiple]
        for multiple in range(prime * prime, root + 1, prime * prime):
            moebius[multiple] = 0
    sums = [0] * (root + 1)
    for number in range(1, root + 1):
        sums[number] = sums[number - 1] + moebius[number]

    @cache
    def total(number: int) -> int:
        if number <= root:
            return sums[number]
        result, first = 1, 2
        while first <= number:
            quotient = number // first
            last = number // quotient
            result -= (last - first + 1) * total(quotient)
            first = last + 1
        return result

    return total(most)


def results(s3: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
    return [json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()) for key in keys]


def queue_example(endpoints: Endpoints) -> None:
    """64 cores, three jobs of 32: two run, the third waits with nothing bought for it."""
    cluster = Cluster(endpoints.kubeconfig)
    s3 = s3_of(endpoints)
    s3.create_bucket(Bucket=BUCKET)
    s3.upload_file(str(CLONE / "examples" / "mertens.py"), BUCKET, "code/mertens.py")
    sluice("apply", "-f", str((DEMO / "quota.yaml").relative_to(CLONE)))
    print("\n$ sluice submit -f examples/demo/jobs.yaml")
    submitted = answer("submit", "-f", str((DEMO / "jobs.yaml").relative_to(CLONE)))
    ids = [each["id"] for each in _items(submitted)]
    for number, workload in enumerate(ids, start=1):
        print(f"{workload}  mertens-{number}  sent")
    phases: Callable[[], list[str]] = lambda: [  # noqa: E731
        each.get("phase", "?") for each in (_got(workload) for workload in ids)
    ]
    began = time.monotonic()
    until("two jobs running", lambda: sum(phase == "RUNNING" for phase in phases()) == PARTS - 1)
    say(f"two of three jobs run, {time.monotonic() - began:.1f} s after the submission")
    sluice("ls")
    (waiting,) = (each for each in ids if _got(each).get("phase") == "PENDING")
    bought = cluster.nodes()
    check("the third is pending and has no pod", holds=not cluster.pods(waiting))
    sluice("why", waiting)
    sluice("queues")
    sluice("capacity")
    until("the third job running", lambda: _got(waiting).get("phase") in ("RUNNING", "SUCCEEDED"))
    (pod,) = cluster.pods(waiting)
    check(
        f"the third runs on {pod.spec.node_name}, a node that was there already",
        holds=pod.spec.node_name in bought,
        found=pod.spec.node_name,
    )
    sluice("wait", *ids)
    parts = results(s3, [f"results/part-{number}.json" for number in range(1, PARTS + 1)])
    for number, part in enumerate(parts, start=1):
        print(f"s3://{BUCKET}/results/part-{number}.json  {json.dumps(part)}")
    found = sum(part["sum"] for part in parts)
    expected = mertens(LAST)
    check(f"the parts add up to M({LAST:,}) = {expected}", holds=found == expected, found=found)
    sluice("logs", waiting)
    account(ids)


def interruption_example(endpoints: Endpoints) -> None:
    """EC2 takes the machine of a running job away; the job goes on elsewhere, from where it was."""
    cluster = Cluster(endpoints.kubeconfig)
    print("\n$ sluice submit -f examples/demo/spot-job.yaml")
    submitted = answer("submit", "-f", str((DEMO / "spot-job.yaml").relative_to(CLONE)))
    (workload,) = (each["id"] for each in _items(submitted))
    print(f"{workload}  mertens-spot  sent")
    until("the spot job running", lambda: _got(workload).get("phase") == "RUNNING")
    (pod,) = cluster.pods(workload)
    before = pod.spec.node_name
    say(f"it runs on {before}")
    time.sleep(HEAD_START_SECONDS)
    instance = cluster.instance(before)
    warned = json.dumps({"instanceId": instance}).encode()
    request = urllib.request.Request(
        f"{endpoints.ec2}/_market/interrupt", warned, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as market:
        reclaim = json.load(market)["reclaimTime"]
    say(f"EC2 warns: {instance} is reclaimed at {reclaim}, in two minutes")
    until("the move", lambda: _got(workload).get("generation", 0) > 0)
    until("it running again", lambda: _got(workload).get("phase") in ("RUNNING", "SUCCEEDED"))
    say("it runs again")
    sluice("wait", workload)
    after = {each.spec.node_name for each in cluster.pods(workload)}
    check(f"it moved from {before} to {', '.join(sorted(after))}", holds=before not in after)
    (result,) = results(s3_of(endpoints), ["results/spot.json"])
    check(
        f"it went on at {result['resumed_at']:,} of {SPOT_LAST:,} rather than from the start",
        holds=result["resumed_at"] > 1,
        found=result["resumed_at"],
    )
    expected = mertens(SPOT_LAST)
    check(f"its sum is M({SPOT_LAST:,}) = {expected}", holds=result["sum"] == expected)
    sluice("events", workload)
    sluice("describe", workload)


def s3_of(endpoints: Endpoints) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoints.aws,
        region_name=endpoints.region,
        aws_access_key_id=endpoints.access_key_id,
        aws_secret_access_key=endpoints.secret_access_key,
    )


def _items(document: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = document["items"] if isinstance(document, dict) else document
    return items


def _got(workload: str) -> dict[str, Any]:
    try:
        found = answer("get", workload)
    except DemoError:
        return {}  # the message is still on its way
    (one,) = _items(found) if not isinstance(found, dict) or "items" in found else [found]
    status: dict[str, Any] = one.get("status", one)
    return status


def account(ids: Sequence[str]) -> None:
    """Times and cost of each job, as recorded."""
    print("\nWORKLOAD       WAITED   STARTING  RAN      COST")
    for workload in ids:
        got = _got(workload)
        at = [got[key] / 1000 for key in ("createdAt", "admittedAt", "startedAt", "finishedAt")]
        waited, starting, ran = (later - earlier for earlier, later in pairwise(at))
        cost = f"${got['costUsd']:.4f}" if got.get("costUsd") else "unknown"
        print(f"{workload}  {waited:5.1f} s  {starting:7.1f} s  {ran:4.1f} s  {cost}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    chosen = parser.parse_args(arguments)
    print("Sluice demo: everything runs on 127.0.0.1 and is gone afterwards.\n", flush=True)
    try:
        sluice("local", "up", "--fresh")
        say("the stack is up and deployed")
        endpoints = Endpoints.read(Layout(default_state()).endpoints)
        queue_example(endpoints)
        interruption_example(endpoints)
    except DemoError as error:
        print(f"\n✗ {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the stack is being stopped", file=sys.stderr)
        return 130
    finally:
        if not chosen.keep:
            subprocess.run([SLUICE, "local", "down"], cwd=CLONE, check=False)
    say("done: every check held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
