"""The ports Migrations, Offerings and Losses: in memory, and as adapters on moto's DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import boto3
import pytest
from moto import mock_aws
from sluice.adapters.dynamodb_losses import DynamoDBLosses
from sluice.adapters.dynamodb_migrations import DynamoDBMigrations
from sluice.adapters.dynamodb_nodes import DynamoDBNodes
from sluice.adapters.dynamodb_offerings import DynamoDBOfferings
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.fit import CheckpointAction
from sluice.core.clusters.quarantine import Ban, Cause, Offering
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations import migration as moving
from sluice.core.migrations.checkpointing import Checkpoint, Part, SaveFailure
from sluice.core.migrations.interruption import Notice, NoticeKind
from sluice.core.migrations.losses import Loss
from sluice.core.migrations.migration import Migration, PodCheckpoint, Stage
from sluice.ports import Losses, Migrations, Nodes, Offerings

from tests.contract.aws.ports import KEYS, make_table
from tests.fakes import MemoryLosses, MemoryMigrations, MemoryNodes, MemoryOfferings

NOW = 1_800_000_000_000
CLUSTER = "batch-1"
A_MOVE = Migration(
    workload="w1",
    generation=2,
    cluster=CLUSTER,
    instance="i-1",
    node="n-1",
    kind="spot",
    noticed_at=NOW,
    received_at=NOW + 1,
    deadline=NOW + 120_000,
    driver=CheckpointMode.KUBELET,
    action=CheckpointAction.DUMP,
    reason="needs 3 s, has 111 s: dump",
    numbers={"needs_ms": 3_000, "usd_per_hour": 0.25},
    pods=("p-1", "p-2"),
)
NOTICE = Notice(NoticeKind.SPOT, "i-1", NOW, NOW + 120_000, "1", "r", "event-1")


@dataclass(frozen=True)
class Recovering:
    migrations: Migrations
    offerings: Offerings
    losses: Losses
    nodes: Nodes


@pytest.fixture(params=["memory", "moto"])
def ports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recovering]:
    if request.param == "memory":
        yield Recovering(MemoryMigrations(), MemoryOfferings(), MemoryLosses(), MemoryNodes())
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        make_table(client, "migrations", ("id", ""), {})
        make_table(client, "nodes", KEYS["nodes"], {})
        yield Recovering(
            DynamoDBMigrations(client, "migrations"),
            DynamoDBOfferings(client, "nodes"),
            DynamoDBLosses(client, "nodes"),
            DynamoDBNodes(client, "nodes"),
        )


def a_checkpoint(n: int, **fields: object) -> Checkpoint:
    made = Checkpoint("w1", 0, f"s3://b/{n}.tar", NOW + n, CheckpointMode.KUBELET, 10 + n, 7)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_a_notice_is_new_once(ports: Recovering) -> None:
    key = NOTICE.key("2026-11-20T10:00:00Z")

    assert [ports.migrations.note(key, NOTICE) for _ in range(3)] == [True, False, False]
    assert ports.migrations.note(NOTICE.key("another launch"), NOTICE)


def test_the_first_record_of_a_move_stands(ports: Recovering) -> None:
    later = replace(A_MOVE, instance="i-2", reason="of another notice")

    assert ports.migrations.create(A_MOVE) == A_MOVE
    assert ports.migrations.create(later) == A_MOVE
    assert ports.migrations.get("w1#2") == A_MOVE
    assert ports.migrations.get("w1#3") is None


def test_one_that_was_called_off_gives_way_to_the_next(ports: Recovering) -> None:
    later = replace(A_MOVE, reason="of another request")
    ports.migrations.create(A_MOVE)

    assert ports.migrations.apply([moving.called_off(A_MOVE, "CRIU refused", NOW)]) == [True]

    assert ports.migrations.create(later) == later
    assert ports.migrations.get("w1#2") == later


def test_one_whose_machine_goes_away_meanwhile_is_not_called_off(ports: Recovering) -> None:
    ports.migrations.create(A_MOVE)
    called_off = moving.called_off(A_MOVE, "CRIU refused", NOW)

    done = ports.migrations.apply([moving.sooner(A_MOVE, A_MOVE.deadline - 1_000), called_off])

    assert done == [True, False]


def test_a_step_holds_only_in_its_stages(ports: Recovering) -> None:
    saved = {
        "p-1": PodCheckpoint("s3://b/1.tar", 5, 6, NOW, "ecr/x:1"),
        "p-2": PodCheckpoint("s3://b/2.tar"),
    }
    first = {
        "p-1": PodCheckpoint("s3://b/f1.tar", 5, 6, NOW),
        "p-2": PodCheckpoint("s3://b/f2.tar"),
    }
    ports.migrations.create(A_MOVE)

    done = ports.migrations.apply(
        [
            moving.order(A_MOVE),
            moving.first_saved(A_MOVE, first, NOW + 3_000),
            moving.first_failed(A_MOVE, "said by another pod", NOW + 3_100),
            moving.last_ordered(A_MOVE, "its replacement is ready", NOW + 4_000),
            moving.first_taken(A_MOVE, "decided by somebody else", NOW + 4_000),
            moving.dumped(A_MOVE, saved, NOW + 9_000),
            moving.order(A_MOVE),
            moving.stopping(A_MOVE, NOW + 9_100),
            moving.stopping(A_MOVE, NOW + 9_200),
            moving.fenced(A_MOVE, NOW + 9_900),
            moving.running(A_MOVE, NOW + 15_000, {"lost_ms": 100}),
            moving.abandoned(A_MOVE, "too late"),
        ]
    )

    first_steps = [True, True, False, True, False]
    assert done == [*first_steps, True, False, True, False, True, True, False]
    record = ports.migrations.get("w1#2")
    assert record is not None
    assert (record.stage, record.saved, record.pods) == (Stage.RUNNING, saved, ("p-1", "p-2"))
    assert (record.first, record.first_at, record.first_error) == (first, NOW + 3_000, "")
    assert (record.last_at, record.last_reason) == (NOW + 4_000, "its replacement is ready")
    assert (record.dumped_at, record.running_at) == (NOW + 9_000, NOW + 15_000)
    assert record.stopping_at == NOW + 9_100, "a race of two observers tells it once"
    assert record.numbers["lost_ms"] == 100


def test_a_step_of_a_move_that_nobody_began_is_refused(ports: Recovering) -> None:
    assert ports.migrations.apply([moving.order(A_MOVE)]) == [False]


def test_only_the_newest_checkpoints_stay_listed(ports: Recovering) -> None:
    for n in (1, 3, 2, 4, 4):
        ports.migrations.keep(a_checkpoint(n), retain=2)
    ports.migrations.keep(a_checkpoint(9, workload="w2", image="ecr/x:9", node="n"), retain=2)

    kept = {each.uri: each for each in ports.migrations.checkpoints("w1")}
    assert kept == {f"s3://b/{n}.tar": a_checkpoint(n) for n in (3, 4)}
    assert [each.source for each in ports.migrations.checkpoints("w2")] == ["ecr/x:9"]
    assert ports.migrations.checkpoints("w3") == []


def test_a_set_is_one_entry_with_all_its_parts(ports: Recovering) -> None:
    parts = tuple(
        Part(n, f"s3://b/o/{n}.tar", 5, digest="ab", node=f"n-{n}", image=f"ecr/x:{n}")
        for n in ("0", "1")
    )
    made = a_checkpoint(1, uri="s3://b/o/", parts=parts)

    for _ in range(2):
        ports.migrations.keep(made, retain=2)

    assert ports.migrations.checkpoints("w1") == [made]


def test_who_could_not_start_from_a_checkpoint_is_noted_once(ports: Recovering) -> None:
    for n in (1, 2):
        ports.migrations.keep(a_checkpoint(n, cpu="intel/7"), retain=3)

    for generation in (4, 4, 5):
        ports.migrations.fail("w1", "s3://b/2.tar", generation, f"of {generation}")
    ports.migrations.keep(a_checkpoint(2, cpu="intel/7"), retain=3)  # a late report

    good, bad = sorted(ports.migrations.checkpoints("w1"), key=lambda each: each.at)
    assert good == a_checkpoint(1, cpu="intel/7")
    assert (bad.failed, bad.failure, bad.usable) == ((4, 5), "of 5", False)


def test_what_leaves_the_list_waits_until_its_archive_is_removed(ports: Recovering) -> None:
    migrations = ports.migrations
    for n in (1, 2, 3, 4):
        migrations.keep(a_checkpoint(n), retain=2, pinned="s3://b/1.tar")
    migrations.keep(a_checkpoint(2), retain=2)  # a late report of one that has left

    assert {each.uri for each in migrations.checkpoints("w1")} == {
        f"s3://b/{n}.tar" for n in (1, 3, 4)
    }
    assert migrations.dropped("w1") == [a_checkpoint(2)]
    migrations.forget("w1", [a_checkpoint(2)])
    assert migrations.dropped("w1") == []
    migrations.drop("w1")
    assert {each.removed for each in migrations.checkpoints("w1")} == {True}
    migrations.drop("w1")
    assert [each.removed for each in migrations.dropped("w1")] == [False] * 3
    assert migrations.dropped("nobody") == []


def test_barred_offerings_and_pools_are_kept_by_cluster(ports: Recovering) -> None:
    ban = Ban(Offering("c5.large", "z-1", "spot"), Cause.LOST, NOW, NOW + 10)
    other = replace(ban, offering=Offering("c5.large", "z-1", "on-demand"), until=NOW + 20)
    pool = Ban(Offering(pool="spot"), Cause.SOLD_OUT, NOW, NOW + 5, 2, "no capacity")
    again = replace(ban, cause=Cause.SOLD_OUT, until=NOW + 30, strikes=3)

    for each in (ban, other, pool, again):
        ports.offerings.ban(CLUSTER, each)

    found = {each.offering.key: each for each in ports.offerings.banned(CLUSTER)}
    assert found == {each.offering.key: each for each in (again, other, pool)}
    assert ports.offerings.banned("elsewhere") == []


def test_the_first_word_on_a_lost_machine_counts(ports: Recovering) -> None:
    warned = Loss("i-1", NOW, "spot", True, "spot", "pool", "c5.large", "z-1")

    ports.losses.record(CLUSTER, warned)
    ports.losses.record(CLUSTER, replace(warned, kind="terminated", noticed=False))
    ports.losses.record("other", replace(warned, instance="i-2"))

    assert ports.losses.of(CLUSTER) == [warned]


def test_losses_and_bans_are_no_machines(ports: Recovering) -> None:
    ports.offerings.ban(CLUSTER, Ban(Offering("c5.large", "z-1"), Cause.LOST, NOW, NOW + 10))
    ports.losses.record(CLUSTER, Loss("i-1", NOW, "spot", True))
    ports.nodes.put_many(CLUSTER, [InventoryRow("i-1", seen_at=NOW)])

    assert [each.instance for each in ports.nodes.of(CLUSTER)] == ["i-1"]
    assert ports.nodes.find(CLUSTER, "c5.large/z-1/") is None


def test_why_it_could_not_be_saved_counts_until_it_is_saved(ports: Recovering) -> None:
    failure = SaveFailure(NOW, 2, "it uses io_uring")
    assert ports.migrations.refused("w1") is None

    ports.migrations.refuse("w1", failure)
    ports.migrations.refuse("w1", replace(failure, why="told again"))
    assert ports.migrations.refused("w1") == failure

    made = Checkpoint("w1", 2, "s3://b/1.tar", NOW + 1, CheckpointMode.KUBELET)
    ports.migrations.keep(made, retain=3)
    assert ports.migrations.refused("w1") is None
    assert ports.migrations.checkpoints("w1") == [made]
