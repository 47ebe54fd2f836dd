"""The function behind the queue of interruptions, on batches of events as EC2 sends them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice import bootstrap
from sluice.core.lifecycle.record import State
from sluice.core.migrations.interruption import MIGRATION_REQUESTED, request_event
from sluice.errors import ClusterError
from sluice.usecases.migrations.handle_notices import HandleNotices

from functions import interrupt
from tests.fakes import InlineExecutor
from tests.unit.functions.conftest import Context
from tests.unit.functions.events import REGION, sqs
from tests.unit.migration.town import Town

ACCOUNT = "123456789012"


class NoisyTown(Town):
    """Its events are those of the account and Region in which the function runs."""

    def event(self, kind: str, at: int, detail: dict[str, str]) -> dict[str, Any]:
        zone = f"arn:aws:ec2:{REGION}a:instance/{detail['instance-id']}"
        ours = {"account": ACCOUNT, "region": REGION, "resources": [zone]}
        return super().event(kind, at, detail) | ours


@pytest.fixture
def town(monkeypatch: pytest.MonkeyPatch) -> NoisyTown:
    town = NoisyTown()
    pool: Any = InlineExecutor()
    together = lambda: HandleNotices(town.interrupt_use(), pool)  # noqa: E731
    monkeypatch.setattr(bootstrap, "handle_notices", together)
    return town


def failures(answer: Any) -> list[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def test_a_batch_of_copies_strangers_and_noise_moves_one_workload_once(
    town: NoisyTown, context: Context
) -> None:
    node = town.runs("w")
    warning = town.notice(node)
    launched = town.event(
        "EC2 Instance State-change Notification",
        town.clock.now(),
        {"instance-id": "i-0abc", "state": "running"},
    )
    noise = [launched, town.notice("node-4711"), warning | {"account": "111122223333"}, {}, "[]"]

    answer = interrupt.handler(
        sqs(warning, *noise, warning, "{", warning, warning, queue="interruptions"), context
    )

    assert failures(answer) == ["m7"], "only what is no JSON comes again, and then is a dead letter"
    assert town.row("w").state is State.RECLAIMING
    assert list(town.migrations.rows) == ["w#0"]
    town.pass_quietly(20)
    town.runs_once_more("w")


def test_a_cluster_that_does_not_answer_gives_back_its_own_events_only(
    town: NoisyTown, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = town.runs("w")
    warning = town.notice(node)
    cluster = town.kubernetes.cluster

    def silent(name: str) -> Any:
        raise ClusterError(f"{name} does not answer")

    monkeypatch.setattr(town.kubernetes, "cluster", silent)
    batch = sqs({"detail": None}, warning, queue="interruptions")
    assert failures(interrupt.handler(batch, context)) == ["m1"]
    assert town.row("w").state is State.DISPATCHED

    monkeypatch.setattr(town.kubernetes, "cluster", cluster)
    assert failures(interrupt.handler(batch, context)) == []
    town.pass_quietly(20)
    town.runs_once_more("w")


def test_s2_a_wish_from_the_queue_of_agents_moves_nobody(town: NoisyTown, context: Context) -> None:
    """Finding S2: only `api` and `observe` reach the queue from which wishes are taken."""
    town.runs("w")
    forged = request_event(MIGRATION_REQUESTED, town.clock.now(), {"workload": "w"})

    assert failures(interrupt.handler(sqs(forged, queue="notices"), context)) == []
    assert failures(interrupt.handler(sqs(forged, queue="new-name"), context)) == []
    assert town.row("w").state is State.DISPATCHED

    interrupt.handler(sqs(forged, queue="interruptions"), context)
    assert town.row("w").state is State.RECLAIMING


def test_of_many_machines_that_go_at_once_the_one_with_the_dearest_work_is_first(
    town: NoisyTown, context: Context
) -> None:
    nodes = {}
    for priority, name in enumerate(("cheap", "dear", "dearest")):
        nodes[name] = town.runs(name)
        town.kubernetes.objects["Node", "", nodes[name]]["spec"]["unschedulable"] = True
        town.workloads.write(replace(town.row(name), priority=priority))
    strange = town.ended("node-4711", "terminated")
    batch = sqs(strange, *(town.notice(node) for node in nodes.values()), queue="interruptions")

    assert failures(interrupt.handler(batch, context)) == []

    noticed = [
        line.workload.id for line in town.timeline.lines if line.what == "InterruptionNoticed"
    ]
    assert noticed == ["dearest", "dear", "cheap"]
