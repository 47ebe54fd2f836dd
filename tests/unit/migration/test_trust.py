"""Finding S2: what one compromised node can say, and what is not believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sluice.core.lifecycle.record import State
from sluice.core.migrations.interruption import (
    CHECKPOINT_REQUESTED,
    INSTANCE_NOTICED,
    MIGRATION_REQUESTED,
    UnreadableEvent,
    read_agent_notice,
    request_event,
)
from sluice.core.migrations.migration import PodCheckpoint
from sluice.core.migrations.pod_annotations import DESTINATION, DONE, DRIVER, ORDER, ordered_result

from tests.unit.migration.town import Town

OWN = "s3://bucket/checkpoints/w/3/"
REPOSITORY = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/checkpoints"


def an_event(what: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    return request_event(what, 1_000, detail) | {"source": source, "account": "1", "region": "r"}


@pytest.mark.parametrize(
    "event",
    [
        an_event(MIGRATION_REQUESTED, "sluice", workload="w", checkpoint="evil.example/x:1"),
        an_event(CHECKPOINT_REQUESTED, "sluice", workload="w"),
        an_event(
            "EC2 Instance State-change Notification",
            **{"instance-id": "i-1", "state": "terminated"},
        ),
        an_event("EC2 Spot Instance Interruption Warning", **{"instance-id": "i-1"}),
        an_event(INSTANCE_NOTICED, "sluice"),
        {},
    ],
)
def test_s2_an_agent_says_nothing_but_that_a_machine_will_be_taken(event: dict[str, Any]) -> None:
    assert isinstance(read_agent_notice(event), UnreadableEvent)


def test_s2_an_agent_may_say_that_its_machine_will_be_taken() -> None:
    detail = {"instance-id": "i-1", "kind": "spot", "at": "2026-11-22T10:00:00Z"}
    (notice,) = read_agent_notice(an_event(INSTANCE_NOTICED, "sluice", **detail))  # type: ignore[misc]

    assert notice.instance == "i-1"


@pytest.mark.parametrize("of_agent", [True, False])
def test_s2_a_workload_starts_from_its_own_checkpoints_only(*, of_agent: bool) -> None:
    town = Town()
    town.runs("w")
    event = request_event(
        MIGRATION_REQUESTED, town.clock.now(), {"workload": "w", "checkpoint": "evil.io/x:1"}
    )

    (handled,) = town.interrupt_use()(event, account="1", region="r", of_agent=of_agent)

    assert "evil.io" in handled.dropped or "may not send" in handled.dropped
    assert town.row("w").state is State.DISPATCHED
    assert not town.migrations.rows


def a_pod(driver: str = "kubelet", **done: Any) -> dict[str, Any]:
    marks = {DRIVER: driver, DESTINATION: OWN, ORDER: "o", DONE: json.dumps({"order": "o"} | done)}
    labels = {"sluice.dev/workload": "w", "sluice.dev/generation": "3"}
    return {"metadata": {"annotations": marks, "labels": labels}, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(uri="s3://bucket/checkpoints/victim/1/o/pod.tar"),
        a_pod(uri="s3://elsewhere/checkpoints/w/3/o/pod.tar"),
        a_pod(uri=f"{OWN}../../victim/1/o/pod.tar"),
        a_pod(uri="cedana://batch-1/action-of-another"),
        a_pod(uri=f"{OWN}o/pod.tar", image="docker.io/evil/miner:1"),
        a_pod(uri=f"{OWN}o/pod.tar", image=f"{REPOSITORY}:victim-1-abc"),
        a_pod(uri=f"{OWN}o/pod.tar", image=f"evil.io/x:w-3-a@sha256:{'0' * 64}"),
        a_pod(driver="cedana", uri=f"{OWN}o/pod.tar"),
        a_pod(driver="cedana", uri="cedana://batch-1/1", image=f"{REPOSITORY}:w-3-a"),
    ],
)
def test_s2_a_node_cannot_pass_off_something_else_as_the_checkpoint_of_its_pod(
    pod: dict[str, Any],
) -> None:
    assert "refused" in str(ordered_result(pod))


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(uri=f"{OWN}o/pod.tar"),
        a_pod(uri=f"{OWN}o/pod.tar", image=f"{REPOSITORY}:w-3-0a1b2c3d4e5f"),
        a_pod(driver="cedana", uri="cedana://batch-1/action"),
        a_pod(driver="application", uri=""),
    ],
)
def test_what_a_node_saved_of_its_own_pod_is_its_checkpoint(pod: dict[str, Any]) -> None:
    assert isinstance(ordered_result(pod), PodCheckpoint)
