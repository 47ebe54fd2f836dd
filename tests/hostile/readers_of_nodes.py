"""What EC2, node agents and the table's stream say, each beside a good neighbour."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any

from sluice import bootstrap
from sluice.adapters.attribute_values import to_item
from sluice.core.lifecycle.record import State
from sluice.core.migrations.interruption import (
    CHECKPOINT_REQUESTED,
    INSTANCE_NOTICED,
    MIGRATION_REQUESTED,
    request_event,
)
from sluice.core.migrations.pod_annotations import DONE, ORDER
from sluice.core.values import strict_json
from sluice.core.values.plain import to_plain
from sluice.usecases.migrations.handle_notices import HandleNotices
from sluice.usecases.migrations.interrupt import NoticeOutcome

from functions import interrupt, relay
from tests.fakes import InlineExecutor
from tests.hostile.desk import Desk, StoredWorkloads, Text, check_item
from tests.hostile.grammar import Grammar, words_of
from tests.hostile.readers_of_tenants import WORDS
from tests.unit.api.control_plane import (
    ACCOUNT,
    CONTEXT,
)
from tests.unit.functions.events import REGION, sqs, stream
from tests.unit.migration.town import Town
from tests.unit.usecases.plane import admitted as an_admitted


class Interrupted(Town):
    """A town of the account and Region of the function, with tables like DynamoDB's."""

    def __init__(self) -> None:
        super().__init__()
        strict = StoredWorkloads(self.workloads.rows, self.workloads.changed)
        self.workloads.write = partial(StoredWorkloads.write, strict)  # type: ignore[method-assign]

    def event(self, kind: str, at: int, detail: dict[str, str]) -> dict[str, Any]:
        return super().event(kind, at, detail) | {"account": ACCOUNT, "region": REGION}

    def hear(self, event: dict[str, Any]) -> NoticeOutcome:
        (handled,) = self.interrupt_use()(event, account=ACCOUNT, region=REGION)
        return handled


TIME = "2026-11-22T10:00:00Z"


def envelope(what: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    ours = {"source": source, "account": ACCOUNT, "region": REGION, "time": TIME, "id": "e"}
    return request_event(what, 1_000, detail) | ours


NOTICES = [
    envelope("EC2 Spot Instance Interruption Warning",
             **{"instance-id": "i-1", "instance-action": "terminate"}),
    envelope("EC2 Instance Rebalance Recommendation", **{"instance-id": "i-1"}),
    envelope("EC2 Instance State-change Notification",
             **{"instance-id": "i-1", "state": "stopped"}),
    envelope("EC2 Capacity Reservation Instance Interruption Warning",
             **{"instance-id": "i-1", "instance-termination-time": TIME}),
    envelope("Capacity Block Reservation Expiration Warning",
             **{"capacity-reservation-id": "cr-1", "end-date": TIME}),
    envelope("EC2 Instance-terminate Lifecycle Action", "aws.autoscaling", EC2InstanceId="i-1"),
    envelope("AWS Health Event", "aws.health", service="EC2",
             startTime="Sun, 22 Nov 2026 10:00:00 GMT", eventRegion=REGION,
             affectedEntities=[{"entityValue": "i-1"}]),
    envelope("FIS Experiment State Change", "aws.fis", **{"experiment-id": "x"}),
    envelope(INSTANCE_NOTICED, "sluice", **{"instance-id": "i-1", "kind": "spot", "at": TIME}),
    envelope(MIGRATION_REQUESTED, "sluice", workload="w", by="u", reason="r"),
    envelope(CHECKPOINT_REQUESTED, "sluice", workload="w", order="request-1", generation=0),
]  # fmt: skip


def notices(dice: Random) -> Text:
    return Grammar(dice, NOTICE_WORDS, NOTICES, most_changes=4).text()


NOTICE_WORDS = words_of(*NOTICES)


def read_notice(text: Text, *, queue: str = "") -> None:
    """Beside the warning of another machine, which must move its work."""
    town = Interrupted()
    node = town.runs("good")
    other = town.runs("w")
    trusted = min(bootstrap.queues_of_interruptions())
    text = text.replace("i-1", town.instance(other))
    batch = sqs(text, town.notice(node), queue=trusted)
    if queue:
        batch["Records"][0]["eventSourceARN"] = f"arn:aws:sqs:{REGION}:1:{queue}"
    pool: Any = InlineExecutor()
    bootstrap.handle_notices = lambda: HandleNotices(town.interrupt_use(), pool)
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:interrupt"
    context: Any = type("Context", (), {**vars(CONTEXT), "invoked_function_arn": arn})()
    again = [
        each["itemIdentifier"] for each in interrupt.handler(batch, context)["batchItemFailures"]
    ]
    assert again == ([] if is_strict_json(text) else ["m0"]), "only what is no JSON is dead"
    assert town.row("good").state is State.RECLAIMING, "the neighbour's machine was not left"
    for migration in town.migrations.rows.values():
        check_item(item_of_migration(migration))
    town.check()


def is_strict_json(text: str) -> bool:
    try:
        strict_json.parse(text)
    except strict_json.JsonError:
        return False
    return True


class Anything(set[str]):
    """What an agent says of its own pods may be untrue: then nothing starts from it."""

    def __contains__(self, _: object) -> bool:
        return True


def item_of_migration(migration: Any) -> Any:
    return to_item(to_plain(migration))


def changes(dice: Random) -> Text:
    """A record of the stream of the table Workloads; whoever may write the table could forge it."""
    record = an_admitted()
    seeds = [stream((None, record))["Records"][0], stream((record, record))["Records"][0]]
    text = Grammar(dice, WORDS, seeds, most_changes=4).document()
    return json.dumps(text if isinstance(text, dict) else seeds[0])


def read_change(text: Text) -> None:
    desk = Desk()
    good = stream((None, an_admitted("good")))["Records"][0]
    bootstrap.relay = lambda: desk.relay
    relay.handler({"Records": [json.loads(text), good]}, CONTEXT)
    assert ("batch-1", ["good"]) in [(c, [*ids][-1:]) for c, ids in desk.commands.sent], (
        "the neighbour is not dispatched"
    )


DONE_SEEDS = [
    {"order": "ORDER", "uri": "URI", "image": "", "bytes": 1, "sha256": "0" * 64, "seconds": 1.5,
     "at": 1_763_700_000_000, "held": 1},
    {"order": "ORDER", "error": "no room", "at": 1_763_700_000_000},
    {"order": "ORDER", "uri": "URI", "bytes": 1, "seconds": 1, "at": 1, "held": 1, "ended": 5},
]  # fmt: skip


def agent_answers(dice: Random) -> Text:
    return Grammar(dice, words_of(*DONE_SEEDS), DONE_SEEDS, most_changes=4).text()


def read_annotation(text: Text) -> None:
    """What a node's agent answers for its pod, beside a workload that moves as well."""
    town = Interrupted()
    town.saved_seen = Anything()
    nodes = {name: town.runs(name, mode="kubelet") for name in ("bad", "good")}
    for node in nodes.values():
        town.hear(town.notice(node))
    key = next(
        key
        for key, each in town.kubernetes.objects.items()
        if key[0] == "Pod" and each["metadata"]["labels"].get("sluice.dev/workload") == "bad"
    )
    pod = town.kubernetes.objects[key]
    order = pod["metadata"]["annotations"].get(ORDER, "")
    uri = town.archived(pod, order)
    said = text.replace("ORDER", order).replace("URI", uri)
    marks = {"metadata": {"annotations": {DONE: said}}}
    town.kubernetes.patch("Pod", key[1], key[2], marks)
    for name in ("bad", "good"):
        town.obey(name)
    town.observe()
    town.pass_quietly(40)
    for node in nodes.values():
        if node not in town.kubernetes.dead:
            town.end(node)
    town.pass_quietly(200)
    assert town.row("good").generation == 1, "the neighbour did not move"
    assert town.row("bad").generation >= 1, "the workload itself is stuck"
    for migration in town.migrations.rows.values():
        check_item(item_of_migration(migration))
