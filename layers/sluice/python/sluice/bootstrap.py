"""Wires adapters into use cases from a function's environment; built once per Lambda process."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from sluice import environment
from sluice.adapters import dynamodb_stream
from sluice.adapters.aws_refusals import refusal
from sluice.adapters.checkpoint_archives import CheckpointArchives
from sluice.adapters.dynamodb_answers import take_as_they_come
from sluice.adapters.dynamodb_catalog import DynamoDBCatalog
from sluice.adapters.dynamodb_conflicts import retry_conflicts
from sluice.adapters.dynamodb_faults import DynamoDBFaults
from sluice.adapters.dynamodb_leases import DynamoDBLeases
from sluice.adapters.dynamodb_ledgers import DynamoDBLedgers
from sluice.adapters.dynamodb_losses import DynamoDBLosses
from sluice.adapters.dynamodb_manifests import DynamoDBManifests
from sluice.adapters.dynamodb_migrations import DynamoDBMigrations
from sluice.adapters.dynamodb_nodes import DynamoDBNodes
from sluice.adapters.dynamodb_offerings import DynamoDBOfferings
from sluice.adapters.dynamodb_pools import DynamoDBPools
from sluice.adapters.dynamodb_timeline import DynamoDBTimeline
from sluice.adapters.dynamodb_workloads import DynamoDBWorkloads
from sluice.adapters.ec2_machine_sizes import EC2MachineSizes
from sluice.adapters.ec2_machines import EC2Machines
from sluice.adapters.ec2_prices import EC2Prices
from sluice.adapters.eks_clusters import EKSClusters
from sluice.adapters.eventbridge_bus import EventBridgeBus
from sluice.adapters.lambda_consumers import LambdaConsumers
from sluice.adapters.lambda_observers import LambdaObservers
from sluice.adapters.s3_logs import S3Logs
from sluice.adapters.s3_recordings import S3Recordings
from sluice.adapters.s3_task_tokens import S3TaskTokens
from sluice.adapters.sqs_dead_letters import SQSDeadLetters
from sluice.adapters.sqs_queues import (
    SQSCommands,
    SQSCompletions,
    SQSInterruptions,
    SQSKicks,
    SQSProvisions,
)
from sluice.adapters.step_functions import StepFunctions
from sluice.adapters.system_clock import SystemClock
from sluice.cedana.http_service import CedanaServices, retire
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.environment import Table
from sluice.message_queues import DEAD_LETTERS, QUEUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.api.routes import Api
    from sluice.ports import StreamRecord
    from sluice.usecases.admitting.admit import Admit
    from sluice.usecases.admitting.submit import Submit
    from sluice.usecases.capacity.provision import Provision
    from sluice.usecases.capacity.steer_pools import SteerPools
    from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint
    from sluice.usecases.migrations.handle_notices import HandleNotices
    from sluice.usecases.migrations.interrupt import Interrupt
    from sluice.usecases.migrations.migrate import Migrate
    from sluice.usecases.running.act import Act
    from sluice.usecases.running.detect_lost_nodes import DetectLostNodes
    from sluice.usecases.running.observe import Observe
    from sluice.usecases.running.order_checkpoints import OrderCheckpoints
    from sluice.usecases.running.remove_leftovers import RemoveLeftovers
    from sluice.usecases.steering.answer import AnswerByEvent
    from sluice.usecases.upkeep.complete import Complete
    from sluice.usecases.upkeep.note_faults import NoteFaults
    from sluice.usecases.upkeep.relay import Relay
    from sluice.usecases.upkeep.sweep import Sweep

# One pool of connections for the threads of the use cases; retries are bounded so that a function
# fails within its time and SQS brings the message back.
CONFIG = Config(
    max_pool_connections=24,
    connect_timeout=3,
    read_timeout=20,
    retries={"mode": "standard", "total_max_attempts": 4},
    parameter_validation=False,  # AWS validates too; of the time that a call takes here, a tenth
)


def _table(name: str) -> str:
    return os.environ[environment.table_name(name)]


def _queue_url(name: str) -> str:
    return os.environ[environment.queue_url(name)]


def _function(name: str) -> str:
    return os.environ[environment.function_name(name)]


def _bucket() -> str:
    return os.environ[environment.BUCKET]


@cache
def client(service: str) -> Any:
    made = boto3.client(service, config=CONFIG)  # type: ignore[call-overload]
    if service == "dynamodb":
        take_as_they_come(made)
        retry_conflicts(made)
    return made


@cache
def clock() -> SystemClock:
    return SystemClock()


@cache
def workloads() -> DynamoDBWorkloads:
    return DynamoDBWorkloads(client("dynamodb"), _table(Table.WORKLOADS))


@cache
def ledgers() -> DynamoDBLedgers:
    return DynamoDBLedgers(
        client("dynamodb"), _table(Table.LEDGERS), _table(Table.WORKLOADS), _table(Table.CATALOG)
    )


@cache
def catalog() -> DynamoDBCatalog:
    ledgers_table = os.environ.get(environment.table_name(Table.LEDGERS), "")
    return DynamoDBCatalog(client("dynamodb"), _table(Table.CATALOG), ledgers_table)


@cache
def leases() -> DynamoDBLeases:
    return DynamoDBLeases(client("dynamodb"), _table(Table.NODES))


@cache
def manifests() -> DynamoDBManifests:
    return DynamoDBManifests(client("dynamodb"), client("s3"), _table(Table.MANIFESTS), _bucket())


@cache
def timeline() -> DynamoDBTimeline:
    return DynamoDBTimeline(client("dynamodb"), _table(Table.TIMELINE))


@cache
def faults() -> DynamoDBFaults:
    return DynamoDBFaults(client("dynamodb"), _table(Table.TIMELINE))


@cache
def noting() -> NoteFaults:
    from sluice.usecases.upkeep.note_faults import NoteFaults

    return NoteFaults(faults=faults(), clock=clock(), refusal=refusal)


@cache
def nodes() -> DynamoDBNodes:
    return DynamoDBNodes(client("dynamodb"), _table(Table.NODES))


@cache
def offerings() -> DynamoDBOfferings:
    return DynamoDBOfferings(client("dynamodb"), _table(Table.NODES))


@cache
def losses() -> DynamoDBLosses:
    return DynamoDBLosses(client("dynamodb"), _table(Table.NODES))


@cache
def pools() -> DynamoDBPools:
    return DynamoDBPools(client("dynamodb"), _table(Table.NODES))


@cache
def migrations() -> DynamoDBMigrations:
    return DynamoDBMigrations(client("dynamodb"), _table(Table.MIGRATIONS))


@cache
def migrate() -> Migrate:
    from sluice.usecases.migrations.migrate import Migrate

    return Migrate(
        workloads=workloads(),
        migrations=migrations(),
        archives=archives(),
        timeline=timeline(),
        nodes=nodes(),
        clock=clock(),
    )


def migrate_with_cedana() -> Migrate:
    """For the one function that may speak to Cedana."""
    from sluice.usecases.migrations.migrate import Migrate

    told = {CheckpointMode.CEDANA: lambda uri: retire(cedanas(), uri)}
    kept = CheckpointArchives(client("s3"), lambda: client("ecr"), checkpoints(), told)
    return Migrate(
        workloads=workloads(),
        migrations=migrations(),
        archives=kept,
        timeline=timeline(),
        nodes=nodes(),
        clock=clock(),
    )


@cache
def weigh() -> AssessCheckpoint:
    from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint

    return AssessCheckpoint(nodes=nodes(), migrations=migrations(), clock=clock())


@cache
def archives() -> CheckpointArchives:
    return CheckpointArchives(client("s3"), lambda: client("ecr"), checkpoints())


def checkpoints() -> str:
    """Below which address node agents store archives."""
    return f"s3://{_bucket()}/checkpoints/"


@cache
def remove_leftovers() -> RemoveLeftovers:
    from sluice.usecases.running.remove_leftovers import RemoveLeftovers

    return RemoveLeftovers(
        archives=archives(), migrations=migrations(), workloads=workloads(), clock=clock()
    )


@cache
def cedanas() -> CedanaServices:
    return CedanaServices(
        catalog=catalog(), secrets=lambda: client("secretsmanager"), clock=clock()
    )


@cache
def interruptions() -> SQSInterruptions:
    return SQSInterruptions(client("sqs"), _queue_url("interruptions"))


@cache
def order_checkpoints() -> OrderCheckpoints:
    from sluice.usecases.running.order_checkpoints import OrderCheckpoints

    return OrderCheckpoints(
        nodes=nodes(), losses=losses(), interruptions=interruptions(), clock=clock()
    )


@cache
def prices() -> EC2Prices:
    # The price list is served from few regions, whatever the region of the instances.
    listed = boto3.client("pricing", region_name="us-east-1", config=CONFIG)
    return EC2Prices(ec2(), listed, ec2().meta.region_name, clock())


@cache
def logs() -> S3Logs:
    return S3Logs(client("s3"), _bucket())


@cache
def recordings() -> S3Recordings:
    return S3Recordings(client("s3"), _bucket())


@cache
def kicks() -> SQSKicks:
    return SQSKicks(client("sqs"), _queue_url("kicks"))


@cache
def commands() -> SQSCommands:
    return SQSCommands(client("sqs"), _queue_url("commands"))


@cache
def provisions() -> SQSProvisions:
    return SQSProvisions(client("sqs"), _queue_url("provisions"))


@cache
def clusters() -> EKSClusters:
    session = boto3.Session()
    sts = client("sts")
    core = session._session  # noqa: SLF001, boto3 keeps its botocore session there
    return EKSClusters(client("eks"), core, sts.meta.region_name, sts.meta.endpoint_url)


@cache
def observers() -> LambdaObservers:
    return LambdaObservers(client("lambda"), _function("observe"), leases(), clock())


@cache
def submit() -> Submit:
    from sluice.usecases.admitting.submit import Submit

    return Submit(
        workloads=workloads(),
        manifests=manifests(),
        catalog=catalog(),
        clock=clock(),
        tokens=task_tokens(),
        completions=completions(),
        pools=pools(),
    )


@cache
def submit_from_cluster() -> Submit:
    from sluice.usecases.admitting.submit import Submit

    return Submit(
        workloads=workloads(),
        manifests=manifests(),
        catalog=catalog(),
        clock=clock(),
        pools=pools(),
    )


@cache
def admit() -> Admit:
    from sluice.usecases.admitting.admit import Admit
    from sluice.usecases.fleet import Fleet

    fleet = Fleet(nodes=nodes(), clock=clock())
    return Admit(
        workloads=workloads(),
        ledgers=ledgers(),
        catalog=catalog(),
        kicks=kicks(),
        clock=clock(),
        pools=pools(),
        fleet=fleet,
        recordings=recordings(),
    )


def stream_record(change: Mapping[str, Any]) -> StreamRecord:
    """See `dynamodb_stream`."""
    return dynamodb_stream.stream_record(change)


@cache
def relay() -> Relay:
    from sluice.usecases.upkeep.relay import Relay

    omitted = frozenset(os.environ.get(environment.EVENTS_OMITTED, "").split(",")) - {""}
    bus = EventBridgeBus(client("events"), os.environ[environment.BUS_NAME], omitted)
    return Relay(
        kicks=kicks(), commands=commands(), provisions=provisions(), timeline=timeline(), bus=bus
    )


@cache
def act() -> Act:
    from sluice.cedana.reconciler import CedanaReconciler
    from sluice.usecases.running.act import Act

    return Act(
        workloads=workloads(),
        manifests=manifests(),
        catalog=catalog(),
        clusters=clusters(),
        observers=observers(),
        clock=clock(),
        migrate=migrate_with_cedana(),
        weigh=weigh(),
        offerings=offerings(),
        pools=pools(),
        checkpoints=checkpoints(),
        reconcilers={
            CheckpointMode.CEDANA: CedanaReconciler(
                workloads=workloads(), timeline=timeline(), clock=clock(), apis=cedanas()
            )
        },
    )


@cache
def interrupt() -> Interrupt:
    from sluice.usecases.migrations.interrupt import Interrupt

    return Interrupt(
        workloads=workloads(),
        catalog=catalog(),
        clusters=clusters(),
        nodes=nodes(),
        offerings=offerings(),
        losses=losses(),
        migrations=migrations(),
        timeline=timeline(),
        clock=clock(),
        pools=pools(),
        ledgers=ledgers(),
        ec2=machines(),
    )


def queues_of_events() -> frozenset[str]:
    """Names of the queue in which the bus is the sender: as deployed, and as `redrive` names it."""
    return frozenset({os.environ[environment.EVENTS_QUEUE], "events"})


def queues_of_interruptions() -> frozenset[str]:
    """Names of the queue that no node agent reaches: as deployed, and as `redrive` names it."""
    return frozenset({os.environ[environment.INTERRUPTIONS_QUEUE], "interruptions"})


@cache
def handle_notices() -> HandleNotices:
    from sluice.usecases.migrations.handle_notices import HandleNotices

    return HandleNotices(interrupt())


@cache
def detect_lost_nodes() -> DetectLostNodes:
    from sluice.usecases.running.detect_lost_nodes import DetectLostNodes

    return DetectLostNodes(machines(), interruptions())


@cache
def machines() -> EC2Machines:
    return EC2Machines(ec2, clock())


@cache
def ec2() -> Any:
    return client("ec2")


@cache
def observe() -> Observe:
    from sluice.usecases.running.observe import compose_observe

    return compose_observe(
        workloads=workloads(),
        catalog=catalog(),
        clusters=clusters(),
        commands=commands(),
        nodes=nodes(),
        archive=logs(),
        leases=leases(),
        prices=prices(),
        clock=clock(),
        migrate=migrate(),
        order_checkpoints=order_checkpoints(),
        detect_lost_nodes=detect_lost_nodes(),
        submit=submit_from_cluster(),
    )


@cache
def provision() -> Provision:
    from sluice.usecases.capacity.provision import Provision

    return Provision(
        workloads=workloads(),
        catalog=catalog(),
        clusters=clusters(),
        offerings=offerings(),
        pools=pools(),
        commands=commands(),
        nodes=nodes(),
        clock=clock(),
        sizes=EC2MachineSizes(client("ec2"), clock()),
    )


@cache
def steer_pools() -> SteerPools:
    from sluice.usecases.capacity.steer_pools import SteerPools

    return SteerPools(clusters(), pools())


@cache
def sweep() -> Sweep:
    from sluice.usecases.upkeep.sweep import Sweep
    from sluice.usecases.upkeep.unanswered import Unanswered

    unanswered = Unanswered(
        workloads=workloads(), tokens=task_tokens(), completions=completions(), clock=clock()
    )
    return Sweep(
        workloads=workloads(),
        ledgers=ledgers(),
        catalog=catalog(),
        kicks=kicks(),
        clock=clock(),
        unanswered=unanswered,
    )


@cache
def task_tokens() -> S3TaskTokens:
    return S3TaskTokens(client("s3"), _bucket())


@cache
def completions() -> SQSCompletions:
    return SQSCompletions(client("sqs"), _queue_url("completions"))


@cache
def complete() -> Complete:
    from sluice.usecases.upkeep.complete import Complete

    tasks = StepFunctions(client("stepfunctions"))
    return Complete(
        workloads=workloads(), tokens=task_tokens(), tasks=tasks, timeline=timeline(), clock=clock()
    )


@cache
def answer() -> AnswerByEvent:
    from sluice.usecases.steering.answer import AnswerByEvent
    from sluice.usecases.steering.checks import Answer

    recorded = Answer(workloads=workloads(), kicks=kicks(), clock=clock())
    return AnswerByEvent(
        answer=recorded,
        catalog=catalog(),
        workloads=workloads(),
        timeline=timeline(),
        clock=clock(),
    )


@cache
def dead_letters() -> SQSDeadLetters:
    # Names only: the variables of a function are limited to 4 KB, and all queues share an address.
    address = os.environ[environment.queue_url("kicks")].rpartition("/")[0]
    names = dict(pair.split("=") for pair in os.environ[environment.DEAD_LETTERS].split(","))
    urls = {queue: f"{address}/{names[queue]}" for queue in DEAD_LETTERS}
    return SQSDeadLetters(client("sqs"), urls)


@cache
def invoking() -> Any:
    """Calls once, for less than the api has itself: a second try would work beside the first."""
    patient = CONFIG.merge(Config(read_timeout=20, retries={"total_max_attempts": 1}))
    return boto3.client("lambda", config=patient)


@cache
def consumers() -> LambdaConsumers:
    functions = {queue.name: _function(queue.consumer) for queue in QUEUES}
    return LambdaConsumers(invoking, functions)


@cache
def api() -> Api:
    from sluice.api.routes import Api
    from sluice.usecases.reading.accounts import Accounts
    from sluice.usecases.reading.costs import Costs
    from sluice.usecases.reading.explain import Explain
    from sluice.usecases.reading.query import Query
    from sluice.usecases.reading.shares import Shares
    from sluice.usecases.reading.status import Status
    from sluice.usecases.reading.whatif import WhatIf
    from sluice.usecases.steering.apply import Apply
    from sluice.usecases.steering.checks import Answer
    from sluice.usecases.steering.checkup import Checkup
    from sluice.usecases.steering.dead_letters import DeadLetterOffice
    from sluice.usecases.steering.declare_lost import DeclareLost
    from sluice.usecases.steering.drain import Drain
    from sluice.usecases.steering.ledger_audit import LedgerAudit
    from sluice.usecases.steering.migrations import MigrationRequests
    from sluice.usecases.steering.steer import Steer

    query = Query(
        losses=losses(),
        offerings=offerings(),
        pools=pools(),
        workloads=workloads(),
        ledgers=ledgers(),
        catalog=catalog(),
        manifests=manifests(),
        timeline=timeline(),
        archive=logs(),
        nodes=nodes(),
        faults=faults(),
        clock=clock(),
        admit=admit(),
        recordings=recordings(),
        clusters=clusters(),
    )
    apply = Apply(
        catalog=catalog(),
        ledgers=ledgers(),
        workloads=workloads(),
        kicks=kicks(),
        nodes=nodes(),
        clock=clock(),
    )
    return Api(
        catalog=catalog(),
        query=query,
        explain=Explain(query),
        accounts=Accounts(query),
        costs=Costs(query),
        shares=Shares(query),
        status=Status(query),
        steer=Steer(
            query=query, workloads=workloads(), catalog=catalog(), kicks=kicks(), clock=clock()
        ),
        apply=apply,
        whatif=WhatIf(query),
        checkup=Checkup(query),
        migrations=MigrationRequests(
            query=query,
            migrations=migrations(),
            archives=archives(),
            interruptions=interruptions(),
            clock=clock(),
        ),
        answer=Answer(workloads=workloads(), kicks=kicks(), clock=clock()),
        declare_lost=DeclareLost(
            workloads=workloads(), catalog=catalog(), nodes=nodes(), kicks=kicks(), clock=clock()
        ),
        drain=Drain(workloads=workloads(), catalog=catalog(), kicks=kicks(), apply=apply),
        ledger_audit=LedgerAudit(query),
        dead_letters=DeadLetterOffice(
            letters=dead_letters(), consumers=consumers(), faults=faults(), clock=clock()
        ),
    )
