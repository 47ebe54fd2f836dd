"""The control plane in one process: submit, admit, relay and the api on in-memory ports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from sluice.api.routes import Api
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.lifecycle.run import MachineShare
from sluice.core.values.identity import workload_id
from sluice.ports import CatalogEdit, StreamRecord
from sluice.usecases.admitting.submit import Message
from sluice.usecases.fleet import beat
from sluice.usecases.reading.accounts import Accounts
from sluice.usecases.reading.costs import Costs
from sluice.usecases.reading.explain import Explain
from sluice.usecases.reading.query import Query
from sluice.usecases.reading.shares import Shares
from sluice.usecases.reading.status import Status
from sluice.usecases.reading.whatif import WhatIf
from sluice.usecases.steering.apply import Apply, key_of
from sluice.usecases.steering.checks import Answer
from sluice.usecases.steering.checkup import Checkup
from sluice.usecases.steering.dead_letters import DeadLetterOffice
from sluice.usecases.steering.declare_lost import DeclareLost
from sluice.usecases.steering.drain import Drain
from sluice.usecases.steering.ledger_audit import LedgerAudit
from sluice.usecases.steering.migrations import MigrationRequests
from sluice.usecases.steering.steer import Steer

from functions.api import handler
from tests.fakes import (
    FakeClock,
    FakeConsumers,
    FakeKubernetes,
    MemoryDeadLetters,
)
from tests.memory_control_plane import MemoryControlPlane

ACCOUNT = "111122223333"
CONTEXT: Any = SimpleNamespace(
    function_name="api",
    memory_limit_in_mb=512,
    invoked_function_arn=f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:api",
    aws_request_id="request-1",
)
KUEUE = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Signer:
    """A principal that signs requests and sends messages."""

    role: str
    unique_id: str
    session: str = "session"
    account: str = ACCOUNT

    @property
    def iam(self) -> dict[str, str]:
        arn = f"arn:aws:sts::{self.account}:assumed-role/{self.role}/{self.session}"
        user_id = f"{self.unique_id}:{self.session}"
        return {"accountId": self.account, "userArn": arn, "userId": user_id, "callerId": user_id}


def context_of(method: str, signer: Signer) -> dict[str, Any]:
    """What a Function URL tells of a request. Source: Lambda Developer Guide, payload format."""
    return {
        "domainName": "u1.lambda-url.us-east-1.on.aws",
        "http": {"method": method},
        "authorizer": {"iam": signer.iam},
    }


ADMIN = Signer("Platform", "AROAPLATFORM")
RED = Signer("Red", "AROARED")
BLUE = Signer("Blue", "AROABLUE")
STRANGER = Signer("Stranger", "AROASTRANGER")


def tenant(name: str, principal: str, *namespaces: str, admin: bool = False) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {
            "principals": [principal],
            "namespaces": list(namespaces),
            "admin": admin,
            "images": ["*"],
            "requireDigest": False,
            "podSecurity": "baseline",
        },
    }


def flavor(name: str) -> dict[str, Any]:
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}}


def cluster_queue(
    name: str, cpu: int, cohort: str | None = "company", **spec: Any
) -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": str(cpu)}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": resources}]}]
    in_cohort = {"cohortName": cohort} if cohort else {}
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **in_cohort, **spec},
    }


def local_queue(namespace: str, name: str, cq: str) -> dict[str, Any]:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cq},
    }


def cluster(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {},
    }


def native(
    name: str, cpu: int, *, key: str | None = None, namespace: str = "red", queue: str = "batch"
) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace, "idempotencyKey": key or name},
        "spec": {"queue": queue, "image": "example:1", "resources": {"cpu": cpu}},
    }


COMPANY = (
    flavor("spot"),
    cluster("batch-1"),
    cluster_queue("red-cq", 64),
    cluster_queue("blue-cq", 32),
    local_queue("red", "batch", "red-cq"),
    local_queue("blue", "batch", "blue-cq"),
    tenant("platform", "AROAPLATFORM", "platform", admin=True),
    tenant("red", "AROARED", "red"),
    tenant("blue", "AROABLUE", "blue"),
)


class ControlPlane(MemoryControlPlane):
    """Two teams, 64 and 32 cores that they lend to each other, one cluster.

    Clusters that are `silent` do not answer.
    """

    def __init__(
        self,
        objects: tuple[dict[str, Any], ...] = COMPANY,
        *,
        clock: FakeClock | None = None,
        kubernetes: FakeKubernetes | None = None,
    ) -> None:
        super().__init__(clock=clock, kubernetes=kubernetes)
        self.objects = objects
        self.silent: set[str] = set()
        pool = ThreadPoolExecutor(2)
        self.submit = replace(self.submit_use_case(), pool=pool)
        self.admit = replace(self.admit_use_case(), recordings=self.recordings, pool=pool)
        self.relay = self.relay_use_case()
        query = Query(
            workloads=self.workloads,
            ledgers=self.ledgers,
            catalog=self.catalog,
            manifests=self.manifests,
            timeline=self.timeline,
            archive=self.logs,
            nodes=self.nodes,
            losses=self.losses,
            offerings=self.offerings,
            pools=self.pools,
            faults=self.faults,
            clock=self.clock,
            admit=self.admit,
            clusters=self.kubernetes,
            recordings=self.recordings,
        )
        apply = Apply(
            catalog=self.catalog,
            ledgers=self.ledgers,
            workloads=self.workloads,
            kicks=self.kicks,
            nodes=self.nodes,
            clock=self.clock,
        )
        self.dead_letters, self.consumers = MemoryDeadLetters(self.clock), FakeConsumers()
        self.api = Api(
            catalog=self.catalog,
            query=query,
            explain=Explain(query),
            accounts=Accounts(query),
            costs=Costs(query),
            shares=Shares(query),
            status=Status(query),
            steer=Steer(
                query=query,
                workloads=self.workloads,
                catalog=self.catalog,
                kicks=self.kicks,
                clock=self.clock,
            ),
            apply=apply,
            whatif=WhatIf(query),
            checkup=Checkup(query),
            migrations=MigrationRequests(
                query=query,
                migrations=self.migrations,
                archives=self.archives,
                interruptions=self.interruptions,
                clock=self.clock,
            ),
            answer=Answer(workloads=self.workloads, kicks=self.kicks, clock=self.clock),
            declare_lost=DeclareLost(
                workloads=self.workloads,
                catalog=self.catalog,
                nodes=self.nodes,
                kicks=self.kicks,
                clock=self.clock,
            ),
            drain=Drain(
                workloads=self.workloads, catalog=self.catalog, kicks=self.kicks, apply=apply
            ),
            ledger_audit=LedgerAudit(query),
            dead_letters=DeadLetterOffice(
                letters=self.dead_letters,
                consumers=self.consumers,
                faults=self.faults,
                clock=self.clock,
            ),
        )
        put = tuple((*key_of(document), document) for document in self.objects)
        self.catalog.edit(CatalogEdit(0, put))

    def call(
        self,
        method: str,
        path: str,
        signer: Signer = ADMIN,
        body: Any = None,
        query: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """One request through the deployed handler; status and decoded answer."""
        event = {
            "rawPath": path,
            "queryStringParameters": query,
            "requestContext": context_of(method, signer),
            "body": None if body is None else json.dumps(body),
        }
        answer = handler(event, CONTEXT, self.api)
        return answer["statusCode"], json.loads(answer["body"])

    def send(self, document: dict[str, Any], signer: Signer = RED) -> str:
        """Submits one document by message; returns the id that its sender can compute."""
        self.clock.pass_ms(1_000)
        metadata = document["metadata"]
        key = metadata["idempotencyKey"]
        self.deliver(json.dumps(document), signer)
        return workload_id(metadata["namespace"], key)

    def deliver(self, body: str, signer: Signer = RED) -> None:
        number = len(self.workloads.rows)
        message = Message(f"message-{number}", signer.iam["userId"], self.clock.now(), body)
        self.submit([message])
        self.settle()

    def settle(self) -> None:
        """Relays what changed and admits until nothing more moves."""
        for name in self.catalog.snapshot().of("Cluster").keys() - self.silent:
            beat(self.nodes, name, self.clock.now())
        while self.workloads.changed or self.kicks.roots:
            changes = [StreamRecord(b, a, self.clock.now()) for b, a in self.workloads.changed]
            self.workloads.changed.clear()
            self.relay(changes)
            roots = dict.fromkeys(self.kicks.roots)
            self.kicks.roots.clear()
            for root in roots:
                self.admit(root)

    def run(self, workload_id: str, **machine: Any) -> Workload:
        """The cluster starts an admitted workload; `machine` is what is noted of where."""
        record = self.workloads.rows[workload_id]
        self.workloads.apply([lifecycle.claim(record, f"uid-{workload_id}", self.clock.now())])
        record = self.workloads.rows[workload_id]
        start = lifecycle.start(record, self.clock.now())
        self.workloads.apply([lifecycle.noting(start, MachineShare(**machine))])
        self.settle()
        return self.workloads.rows[workload_id]

    def finish(
        self, workload_id: str, *, succeeded: bool = True, nodes: Sequence[str] = ()
    ) -> Workload:
        """The Job of a running workload ends; its quota is released."""
        record = self.workloads.rows[workload_id]
        result = JobResult(succeeded=succeeded, message="exit code 0", nodes=tuple(nodes))
        if not succeeded:
            result = replace(result, reason="BackoffLimitExceeded", message="exit code 3")
        self.workloads.apply([lifecycle.finish(record, result, self.clock.now())])
        self.settle()
        return self.workloads.rows[workload_id]

    def stopped(self, workload_id: str) -> Workload:
        """The pods of a workload that is being stopped are gone."""
        self.workloads.apply([lifecycle.gone(self.workloads.rows[workload_id])])
        self.settle()
        return self.workloads.rows[workload_id]


def renamed(signer: Signer, session: str) -> Signer:
    """The same role under another session name."""
    return replace(signer, session=session)
