"""Submitted work ends once, and quota holds, whatever DynamoDB answers in between.

The use cases run on the real adapters over moto; messages come again as SQS brings them. The
environment variable SLUICE_HOSTILE_SEEDS sets how many seeds run; a failure names its seed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws
from sluice.adapters.dynamodb_answers import take_as_they_come
from sluice.adapters.dynamodb_conflicts import retry_conflicts
from sluice.core.lifecycle.record import TERMINAL, Workload
from sluice.errors import SluiceError
from sluice.ports import CatalogEdit
from sluice.usecases.fleet import beat

from tests.contract.aws.ports import on_aws
from tests.fakes import InlineExecutor
from tests.hostile.aws import HostileAWS
from tests.memory_control_plane import MemoryControlPlane
from tests.unit.usecases.plane import LOCAL_QUEUE, NAMESPACE, TENANT, a_document, a_message
from tests.unit.usecases.world import CLUSTER, FLAVOR, ROOT, queue

SEEDS = int(os.environ.get("SLUICE_HOSTILE_SEEDS", "3"))
JOBS, CORES, ROUNDS = 6, 2, 60
REGION = "us-east-1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")


class Installation(MemoryControlPlane):
    """Tables of DynamoDB behind the real adapters; queues, cluster and clock in memory."""

    def __init__(self, aws: HostileAWS) -> None:
        super().__init__()
        retries: Any = {"mode": "standard", "total_max_attempts": 4}
        client: Any = boto3.client("dynamodb", region_name=REGION, config=Config(retries=retries))
        take_as_they_come(client)
        retry_conflicts(client)
        ports = on_aws(client, boto3.client("s3", region_name=REGION))
        workloads: Any = ports.workloads
        object.__setattr__(workloads, "pool", InlineExecutor())
        self.workloads = workloads
        self.ledgers: Any = ports.ledgers
        self.catalog: Any = ports.catalog
        self.manifests: Any = ports.manifests
        put = (
            ("ResourceFlavor", "spot", FLAVOR),
            ("Cluster", CLUSTER, {"spec": {}}),
            ("ClusterQueue", "a", queue("a", CORES)),
            ("LocalQueue", f"{NAMESPACE}/research", LOCAL_QUEUE),
            ("Tenant", "blue", TENANT),
        )
        assert self.catalog.edit(CatalogEdit(0, put, roots=(ROOT,)))
        self.aws = aws
        self.faults_met: Counter[str] = Counter()
        aws.stand_before(client)

    def attempt(self, step: Callable[[], object]) -> bool:
        """Whether a function got through; otherwise its message comes again."""
        try:
            step()
        except (ClientError, SluiceError) as error:
            self.faults_met[type(error).__name__] += 1
            return False
        return True

    def submit(self, number: int) -> bool:
        message = a_message(a_document(f"k{number}"), f"m{number}")
        return self.attempt(lambda: self._submitted(message))

    def _submitted(self, message: Any) -> None:
        if self.submit_use_case()([message]).failed:
            raise SluiceError("the message comes again")

    def round(self) -> None:
        """Each function once, as schedules and messages start them."""
        beat(self.nodes, CLUSTER, self.clock.now())
        self.attempt(lambda: self.admit_use_case()(ROOT))
        self.attempt(self._act)
        self.kubernetes.provide()
        for kind, namespace, name in [*self.kubernetes.objects]:
            job = self.kubernetes.objects[kind, namespace, name]
            if kind == "Job" and not job["spec"].get("suspend") and self.aws.dice.random() < 0.3:
                self.kubernetes.finish(namespace, name)
        self.attempt(lambda: self.observe_use_case().reconcile(CLUSTER, self.kubernetes))
        self.attempt(self.sweep_use_case())
        self.clock.pass_ms(20_000)

    def _act(self) -> None:
        ids = self.workloads.active(CLUSTER)
        if ids:
            self.act_use_case()(CLUSTER, ids)


@pytest.fixture
def aws_in_process() -> Iterator[None]:
    with mock_aws():
        yield


def run(seed: int) -> tuple[HostileAWS, Installation]:
    """All jobs, from their messages to their ends."""
    aws = HostileAWS(seed)
    plane = Installation(aws)
    waiting = set(range(JOBS))
    for _ in range(ROUNDS):
        for number in sorted(waiting):
            if plane.submit(number) and aws.dice.random() < 0.7:  # otherwise it comes again
                waiting.discard(number)
        plane.round()
        calm = aws.chance
        aws.chance = 0.0
        try:
            records = check(seed, plane)
        finally:
            aws.chance = calm
        if not waiting and all(w.state in TERMINAL and not w.reservation for w in records):
            assert len(records) == JOBS, f"seed {seed}: {len(records)} records"
            return aws, plane
    states = [(w.id, w.state, w.reason) for w in records]
    raise AssertionError(f"seed {seed}: not at an end: {states}, {plane.faults_met}")


def check(seed: int, plane: Installation) -> list[Workload]:
    """Quota holds, and the ledger has what the reservations of the records have."""
    on_dynamodb: Any = plane.workloads
    table = on_dynamodb.client.scan(TableName=on_dynamodb.table, ConsistentRead=True)
    records = plane.workloads.get_many([item["id"]["S"] for item in table["Items"]])
    held = sum(1000 for w in records if w.reservation)
    used = plane.ledgers.read(ROOT).usage.get("a", {}).get("spot|cpu", 0)
    assert used == held, f"seed {seed}: the ledger has {used}, the records {held}"
    assert held <= CORES * 1000, f"seed {seed}: quota is exceeded"
    return records


@pytest.mark.usefixtures("aws_in_process")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_job_ends_once_and_quota_holds(seed: int) -> None:
    aws, _ = run(seed)

    assert aws.injected.total() > 20
