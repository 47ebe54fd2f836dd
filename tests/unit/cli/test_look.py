"""`ls`, `get`, `describe`, `why`, `logs`, `events`, `queues`, `capacity`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from sluice.core.clusters.capacity import Closure, PoolPlan
from sluice.core.clusters.quarantine import Ban, Cause, Offering
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State
from sluice.core.lifecycle.run import MachineShare, Run
from sluice.core.migrations.losses import Loss
from sluice.core.values.reasons import Reason
from sluice.errors import ClusterForbidden

from cli.commands import why
from tests.unit.api.control_plane import ADMIN, BLUE, STRANGER, flavor, native
from tests.unit.cli.terminal import Terminal, items


def two_running_one_waiting() -> tuple[Terminal, list[str]]:
    """Three jobs of 32 cores; with blue's 32 in use, red's 64 hold two of them."""
    terminal = Terminal()
    terminal.plane.send(native("theirs", 32, namespace="blue"), BLUE)
    ids = [terminal.plane.send(native(f"job-{n}", 32)) for n in range(3)]
    for workload_id in ids[:2]:
        terminal.plane.run(workload_id)
    return terminal, ids


def test_ls_shows_the_columns_and_counts_states() -> None:
    terminal, ids = two_running_one_waiting()

    result = terminal("ls")

    headings, *lines = result.stdout.splitlines()
    assert headings.split() == (
        [
            "ID",
            "NAME",
            "QUEUE",
            "STATUS",
            "REASON",
            "POS",
            "REQUEST",
            "WAIT",
            "RUNTIME",
            "RECOV",
            "AGE",
        ]
    )
    assert lines[0].split()[:4] == [ids[2], "job-2", "red/batch", "PENDING"]
    assert "QUOTA:" in lines[0]
    assert "1 PENDING · 2 RUNNING" in result.stderr


def test_ls_wide_adds_columns_and_name_prints_ids() -> None:
    terminal, ids = two_running_one_waiting()

    wide = terminal("ls", "-o", "wide").stdout.splitlines()[0].split()
    names = terminal("ls", "-o", "name").stdout.split()

    assert wide[11:] == (
        [
            "USER",
            "PRIORITY",
            "CLUSTER",
            "NODEPOOL",
            "INSTANCE",
            "CAPACITY",
            "AZ",
            "LAST-CKPT",
            "COST",
        ]
    )
    assert names == ids[::-1]


def test_ls_filters() -> None:
    terminal, ids = two_running_one_waiting()

    assert terminal("ls", "-s", "pending", "-o", "name").stdout.split() == [ids[2]]
    assert terminal("ls", "-n", "job-0", "-o", "name").stdout.split() == [ids[0]]
    assert terminal("ls", "-q", "batch", "--limit", "2", "-o", "name").stdout.split() == ids[:0:-1]
    assert terminal("ls", "-l", "team=x", "-o", "name").stdout == ""


def test_a_state_that_there_is_not_is_told_with_those_there_are() -> None:
    result = Terminal()("ls", "-s", "FOO")

    assert result.exit_code == 5
    assert "'FOO' is no state; there are PENDING, ADMITTED" in result.stderr
    assert Terminal()("ls", "-s", "running").exit_code == 0


def test_ls_says_no_workloads_only_where_nothing_was_asked_for() -> None:
    terminal, _ = two_running_one_waiting()

    assert "no workload matches" in terminal("ls", "-s", "failed").stderr
    assert "no workloads; `sluice submit" in Terminal()("ls").stderr


def test_ls_shows_unfinished_work_however_old_and_finished_work_of_a_day() -> None:
    terminal, ids = two_running_one_waiting()
    terminal.plane.finish(ids[0])
    terminal.plane.clock.pass_ms(2 * 86_400_000)

    shown = terminal("ls", "-o", "name").stdout.split()

    assert sorted(shown) == sorted(ids[1:])
    assert ids[0] in terminal("ls", "--all", "-o", "name").stdout.split()
    assert ids[0] in terminal("ls", "--since", "3d", "-o", "name").stdout.split()


def test_lists_are_read_page_by_page() -> None:
    terminal = Terminal()
    for number in range(7):
        terminal.plane.send(native(f"job-{number}", 1))
    client_page = "sluice.client.api.PAGE"
    import sluice.client.api

    before, sluice.client.api.PAGE = sluice.client.api.PAGE, 3
    try:
        names = [each["name"] for each in items(terminal("ls", "-o", "json"))]
    finally:
        sluice.client.api.PAGE = before

    assert client_page
    assert names == [f"job-{n}" for n in range(6, -1, -1)]


def test_an_id_may_be_cut_as_long_as_it_is_unique() -> None:
    terminal, ids = two_running_one_waiting()

    assert terminal("get", ids[0][:8], "-o", "name").stdout.strip() == ids[0]
    ambiguous = terminal("get", "-n", "nothing")
    assert ambiguous.exit_code == 3


def test_a_unique_name_stands_for_the_id() -> None:
    terminal = Terminal()
    workload = terminal.plane.send(native("training", 1))

    answer = terminal("get", "training", "-o", "name")

    assert answer.exit_code == 0
    assert answer.stdout.strip() == workload


def test_a_name_of_several_is_ambiguous_and_lists_their_ids() -> None:
    terminal = Terminal()
    ids = [terminal.plane.send(native("training", 1, key=f"key-{n}")) for n in range(2)]

    answer = terminal("why", "training")

    assert answer.exit_code == 3
    assert all(identity in answer.stderr for identity in ids)


def test_a_prefix_of_several_is_ambiguous_and_names_some() -> None:
    terminal = Terminal()
    ids = [terminal.plane.send(native(f"job-{n}", 1)) for n in range(40)]
    firsts = [i[0] for i in ids]
    common = next(letter for letter in firsts if firsts.count(letter) > 1)

    result = terminal("get", common)

    assert result.exit_code == 3
    assert "begin with" in result.stderr


def test_a_name_means_the_one_that_still_runs() -> None:
    terminal = Terminal()
    old = terminal.plane.send(native("train", 1, key="a"))
    terminal.plane.run(old)
    terminal.plane.finish(old)
    new = terminal.plane.send(native("train", 1, key="b"))

    assert terminal("get", "-n", "train", "-o", "name").stdout.strip() == new

    terminal.plane.send(native("train", 1, key="c"))
    both = terminal("get", "-n", "train")

    assert both.exit_code == 3
    assert new in both.stderr


def test_get_yaml_is_the_document_with_the_servers_status() -> None:
    terminal, ids = two_running_one_waiting()

    document = yaml.safe_load(terminal("get", ids[2], "-o", "yaml").stdout)

    assert document["spec"] == native("job-2", 32)["spec"]
    assert document["status"]["phase"] == "PENDING"
    assert document["status"]["request"] == {"cpu": "32"}


def test_describe_tells_state_quota_and_timeline() -> None:
    terminal, ids = two_running_one_waiting()

    text = terminal("describe", ids[0]).stdout

    for fact in ("RUNNING", "cpu=32", "red-cq", "batch-1", "Submitted", "Admitted", "Dispatched"):
        assert fact in text


def test_why_names_quota_use_holders_position_and_what_would_help() -> None:
    terminal, ids = two_running_one_waiting()

    result = terminal("why", ids[2])
    answer = json.loads(terminal("why", ids[2], "-o", "json").stdout)

    assert answer["quota"] == [
        {
            "flavor": "spot",
            "resource": "cpu",
            "request": "32",
            "nominal": "64",
            "used": "64",
            "available": "0",
            "potential": "96",
        }
    ]
    assert {holder["id"] for holder in answer["holders"]} >= set(ids[:2])
    assert answer["position"] == 1
    assert answer["reason"]["code"].startswith("QUOTA:")
    assert any("gives back what it needs" in step for step in answer["wouldHelp"])
    assert "32 cpu of flavor spot asked, 0 of 64 free" in result.stdout
    assert "job-0" in result.stdout


def test_who_waits_for_another_says_so_everywhere_and_starts_after_it() -> None:
    terminal = Terminal()
    first = terminal.plane.send(native("prepare", 1))
    document = native("train", 1)
    document["spec"]["dependsOn"] = [{"name": "prepare"}]
    second = terminal.plane.send(document)
    terminal.plane.run(first)

    (line,) = [row for row in terminal("ls").stdout.splitlines() if row.startswith(second)]
    assert "DEPENDENCY:WaitingFor" in line
    assert "It waits: needs prepare to succeed" in terminal("why", second).stdout

    terminal.plane.clock.pass_ms(10_000)
    terminal.plane.finish(first)

    assert terminal.plane.workloads.rows[second].state is State.ADMITTED
    assert "what it waited for has ended" in terminal("events", second).stdout


def test_why_says_who_is_ahead() -> None:
    terminal, ids = two_running_one_waiting()
    later = terminal.plane.send(native("later", 32))

    answer = json.loads(terminal("why", later, "-o", "json").stdout)

    assert [each["id"] for each in answer["ahead"]] == [ids[2]]
    assert answer["position"] == 2


def test_what_why_promises_comes_true() -> None:
    terminal, ids = two_running_one_waiting()
    answer = json.loads(terminal("why", ids[2], "-o", "json").stdout)
    named = next(i for i in ids if any(i in step for step in answer["wouldHelp"]))

    terminal.plane.finish(named)

    assert terminal.plane.workloads.rows[ids[2]].state == "ADMITTED"


def test_administrators_see_who_was_turned_away_as_nobody_they_know() -> None:
    terminal = Terminal()
    terminal.plane.deliver(json.dumps(native("secret-name", 1)), STRANGER)
    administrator = Terminal(terminal.plane, signer=ADMIN)

    (seen,) = items(administrator("ls", "-o", "json"))

    assert (seen["phase"], seen["user"]) == ("REJECTED", "AROASTRANGER")
    assert "secret-name" not in str(seen)
    assert items(terminal("ls", "-o", "json")) == []
    assert administrator("get", seen["id"][:6]).exit_code == 0
    assert terminal("get", seen["id"]).exit_code == 3


def test_a_mistake_of_the_whole_body_is_told_without_a_path() -> None:
    terminal = Terminal()
    terminal.plane.deliver("not json")
    (seen,) = items(terminal("ls", "-o", "json"))

    assert terminal("why", seen["id"]).stdout.startswith("It was rejected: not JSON")
    assert "Error: not JSON" in terminal("describe", seen["id"]).stdout
    assert "  not JSON" in terminal("wait", seen["id"]).stderr


def test_why_promises_no_quota_to_who_does_not_wait_for_any() -> None:
    terminal, ids = two_running_one_waiting()
    document = native("train", 32)
    document["spec"]["dependsOn"] = [{"id": ids[0]}]
    blocked = terminal.plane.send(document)
    terminal("hold", ids[2], "-y")

    held = terminal("why", ids[2]).stdout

    assert "`sluice release` lets it queue again" in held.partition("HELD:User")[2]
    assert "What would admit it" not in held
    assert "What would admit it" not in terminal("why", blocked).stdout


def test_why_does_not_tell_who_was_cancelled_to_wait() -> None:
    terminal, ids = two_running_one_waiting()
    terminal("cancel", ids[2], "-y")

    cancelled = terminal("why", ids[2]).stdout

    assert "CANCELLED:User" in cancelled
    assert "its turn comes" not in cancelled


def test_why_of_a_running_and_of_a_finished_workload() -> None:
    terminal, ids = two_running_one_waiting()
    terminal.plane.finish(ids[1], succeeded=False)

    assert "It runs on batch-1." in terminal("why", ids[0]).stdout
    assert "It has failed: exit code 3." in terminal("why", ids[1]).stdout


def test_events_are_the_timeline() -> None:
    terminal, ids = two_running_one_waiting()

    what = [each["what"] for each in items(terminal("events", ids[0], "-o", "json"))]

    assert what == ["Submitted", "Admitted", "Dispatched", "Running"]


def test_logs_come_from_the_archive_by_generation() -> None:
    terminal, ids = two_running_one_waiting()
    workload_id = ids[0]
    terminal.plane.logs.put(workload_id, 0, "pod-a", "main", "zero ä\n".encode())
    terminal.plane.logs.put(workload_id, 1, "pod-a", "main", b"one\n")
    terminal.plane.logs.put(workload_id, 1, "pod-b", "main", b"two\n")

    assert terminal("logs", workload_id, "-g", "0").stdout == "zero ä\n"
    joined = terminal("logs", workload_id).stdout
    newest = "[pod-a/main] one\n[pod-b/main] two\n"
    assert joined == f"zero ä\n--- generation 1 ---\n{newest}"
    assert terminal("logs", workload_id, "-g", "1").stdout == newest
    assert terminal("logs", workload_id, "--pod", "pod-b").stdout == "two\n"


@pytest.mark.parametrize(
    ("mode", "joined"),
    [
        ("kubelet", "start\n1\n2\nlost\n--- generation 1 ---\n3\n--- generation 3 ---\n4\n"),
        (
            "none",
            (
                "start\n1\n2\nlost\n--- generation 1 ---\nstart\n1\n2\n3\n--- generation 3 ---\n"
                "start\n1\n2\n3\n4\n"
            ),
        ),
    ],
)
def test_what_a_dumped_run_had_printed_before_is_printed_once(mode: str, joined: str) -> None:
    terminal = Terminal()
    document = native("job", 1)
    document["spec"]["checkpoint"] = {"mode": mode}
    job = terminal.plane.send(document)
    terminal.plane.run(job)
    logs = terminal.plane.logs
    logs.put(job, 0, "w-g0-x", "main", b"start\n1\n2\nlost\n")
    logs.put(job, 1, "w-g1-y", "main", b"start\n1\n2\n3\n")
    logs.put(job, 3, "w-g3-z", "main", b"start\n1\n2\n3\n4\n")

    assert terminal("logs", job).stdout == joined
    assert terminal("logs", job, "-g", "3").stdout == "start\n1\n2\n3\n4\n"


def test_logs_that_are_not_there_are_told_as_such() -> None:
    terminal = Terminal()
    job = terminal.plane.send(native("job", 1))

    assert "no logs yet; " in terminal("logs", job).stderr
    assert "has no generation 3; its newest is 0" in terminal("logs", "-g", "3", job).stderr
    terminal.plane.run(job)
    terminal.plane.finish(job)
    assert "no logs are kept of generation 0" in terminal("logs", "-g", "0", job).stderr


def test_long_logs_are_read_in_parts_without_breaking_characters() -> None:
    terminal, ids = two_running_one_waiting()
    text = "é" * 1_200_001 + "\n"
    terminal.plane.logs.put(ids[0], 0, "pod", "main", text.encode())

    assert terminal("logs", ids[0]).stdout == text


def test_live_logs_come_from_the_cluster() -> None:
    terminal, ids = two_running_one_waiting()
    terminal.plane.kubernetes.create(pod_of(ids[0]))

    assert terminal("logs", ids[0]).stdout == "red/pod-1/main says hello\n"


def test_logs_of_a_workload_that_does_not_exist_is_an_outcome_of_its_own() -> None:
    assert Terminal()("logs", "aaaaaaaaaaaaa").exit_code == 102


def test_queues_show_what_is_borrowed_and_lent() -> None:
    terminal = Terminal()
    terminal.plane.send(native("big", 80))

    (red,) = items(terminal("queues", "-o", "json"))
    terminal.signer = BLUE
    (blue,) = items(terminal("queues", "-o", "json"))

    assert (red["nominal"], red["used"]) == ({"cpu": "64"}, {"cpu": "80"})
    assert (red["borrowed"], red["lent"]) == ({"cpu": "16"}, {"cpu": "0"})
    assert (blue["borrowed"], blue["lent"]) == ({"cpu": "0"}, {"cpu": "16"})
    assert blue["available"] == {"cpu": "16"}
    assert (red["pending"], red["running"]) == (0, 1)
    headings = terminal("queues").stdout.splitlines()[0].split()
    assert headings == (
        [
            "QUEUE",
            "COHORT",
            "WEIGHT",
            "NOMINAL",
            "USED",
            "BORROWED",
            "LENT",
            "PENDING",
            "RUNNING",
            "SHARE",
            "OLDEST",
            "P50-WAIT",
            "STATUS",
        ]
    )


def test_capacity_shows_limits_and_what_cannot_be_bought() -> None:
    terminal = Terminal(signer=ADMIN)
    until = terminal.plane.clock.now() + 300_000
    closed = Closure(Reason.INSUFFICIENT_INSTANCE, "NodePool spot: none left", until)
    plans = [
        PoolPlan("on-demand", ("on-demand",), ("on-demand",), limit=64_000),
        PoolPlan("spot", ("spot",), ("spot",), limit=0, closed=closed),
    ]
    terminal.plane.pools.put("batch-1", plans)
    offering = Offering("m5.large", "us-east-1a", "spot")
    ban = Ban(offering, Cause.LOST, until - 1, until)
    over = Ban(Offering("m5.large", "b", "spot"), Cause.LOST, 0, 1)
    for each in (ban, over):
        terminal.plane.offerings.ban("batch-1", each)

    on_demand, spot = items(terminal("capacity", "-o", "json"))
    shown = terminal("capacity").stdout

    assert (on_demand["nodes"], on_demand["limitCpu"], on_demand["closed"]) == (0, "64", None)
    assert spot["closed"]["code"] == "CAPACITY:InsufficientInstance"
    assert spot["closed"]["until"] == until
    assert "CAPACITY:InsufficientInstance for" in shown
    barred = json.loads(terminal("capacity", "-o", "json").stdout)["quarantine"]
    assert [(each["type"], each["zone"]) for each in barred] == [("m5.large", "us-east-1a")]
    assert "BARRED-FOR" in shown


def test_why_names_the_machines_that_a_starting_workload_cannot_get() -> None:
    terminal = Terminal()
    plane = terminal.plane
    job = plane.send(native("job", 8))
    record = plane.workloads.rows[job]
    assert record.reservation is not None
    starting = replace(record, state=State.DISPATCHED, uid="u", dispatched_at=plane.clock.now())
    plane.workloads.write(starting)
    until = plane.clock.now() + 300_000
    closed = Closure(Reason.ACCOUNT_QUOTA, "NodePool spot: VcpuLimitExceeded", until)
    named = record.reservation.pod_sets[0].flavors["cpu"]
    plane.pools.put(record.cluster, [PoolPlan("spot", (named,), ("spot",), closed=closed)])

    assert "VcpuLimitExceeded" in terminal("why", job).stdout
    assert "CAPACITY:AccountQuota" in terminal("why", job, "-o", "json").stdout


def test_capacity_groups_nodes() -> None:
    terminal = Terminal()
    now = terminal.plane.clock.now()
    node = InventoryRow(nodepool="spot", capacity_type="spot", type="c6a.8xlarge", zone="a")
    fresh = replace(node, seen_at=now, allocatable={"cpu": "31850m"}, price=0.5)
    terminal.plane.nodes.put_many(
        "batch-1",
        [
            replace(fresh, instance="i-1", ready=True),
            replace(fresh, instance="i-2", ready=False),
            replace(fresh, instance="i-3", ready=True, seen_at=now - 600_000),
        ],
    )

    lost = Loss("i-0", now - 3_600_000, "spot", noticed=True, nodepool="spot", capacity_type="spot")
    terminal.plane.losses.record("batch-1", lost)
    terminal.plane.losses.record("batch-1", replace(lost, instance="i-9", at=now - 90_000_000))

    (row,) = items(terminal("capacity", "-o", "json"))

    assert row["interrupted24h"] == 1
    assert (row["nodes"], row["ready"], row["provisioning"]) == (2, 1, 1)
    assert row["requestedOfAllocatable"] == "?/63700m"
    assert "?/63.7" in terminal("capacity").stdout.split()
    assert row["costPerHourUsd"] == 1.0
    assert terminal("capacity").stdout.splitlines()[0].split() == (
        [
            "CLUSTER",
            "NODEPOOL",
            "CAPACITY",
            "TYPES",
            "NODES",
            "READY",
            "PROVISIONING",
            "INTERRUPTED/24h",
            "REQ/ALLOC",
            "LIMIT",
            "$/H",
            "BUYS",
        ]
    )


def test_a_name_with_control_characters_cannot_steer_the_terminal() -> None:
    terminal, ids = two_running_one_waiting()
    row = terminal.plane.workloads.rows[ids[0]]
    terminal.plane.workloads.rows[ids[0]] = replace(row, name="\x1b[31mx\ny")

    for command in (("ls",), ("describe", ids[0]), ("why", ids[2])):
        assert "\x1b[31m" not in terminal(*command).stdout


def test_wide_columns_tell_the_machine_and_an_estimated_cost() -> None:
    terminal, ids = two_running_one_waiting()
    plane = terminal.plane
    plane.call("POST", "/catalog", ADMIN, {"documents": [labelled_flavor()]})
    node = InventoryRow("i-1", "node-1", "c6a.16xlarge", "use1-az1", "spot")
    node = replace(node, allocatable={"cpu": "64"}, price=1.20)
    plane.nodes.put_many("batch-1", [replace(node, seen_at=plane.clock.now())])
    running = json.loads(terminal("get", ids[0], "-o", "json").stdout)["status"]

    record = plane.workloads.rows[ids[0]]
    plane.workloads.rows[ids[0]] = replace(record, machine=MachineShare(usd_per_hour=0.6))
    heading = terminal("ls").stderr
    plane.clock.pass_ms(3_600_000)
    plane.finish(ids[0], nodes=["node-1"])
    ended = json.loads(terminal("get", ids[0], "-o", "json").stdout)["status"]

    assert (running["nodepool"], running["capacity"]) == ("batch-spot", "spot")
    assert (ended["instance"], ended["zone"]) == ("c6a.16xlarge", "use1-az1")
    assert ended["costUsd"] == pytest.approx(0.60, rel=0.01), "its share of the node for an hour"
    assert "$0.60/h" in heading


def labelled_flavor() -> dict[str, Any]:
    labels = {"karpenter.sh/nodepool": "batch-spot", "karpenter.sh/capacity-type": "spot"}
    return {**flavor("spot"), "spec": {"nodeLabels": labels}}


def test_a_cluster_that_gives_no_log_is_worth_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, ids = two_running_one_waiting()
    terminal.plane.kubernetes.create(pod_of(ids[0]))

    def refuse(*_: object, **__: object) -> bytes:
        raise ClusterForbidden("pods/log is forbidden")

    monkeypatch.setattr(terminal.plane.kubernetes, "logs", refuse)
    result = terminal("logs", ids[0])

    assert result.exit_code == 7
    assert "pods/log is forbidden" in result.stderr


def pod_of(workload_id: str) -> dict[str, Any]:
    labels = {"sluice.dev/workload": workload_id, "sluice.dev/generation": "0"}
    return {
        "kind": "Pod",
        "metadata": {"name": "pod-1", "namespace": "red", "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }


def test_a_moved_workload_waited_once_and_says_what_the_move_cost() -> None:
    terminal, ids = two_running_one_waiting()
    plane = terminal.plane
    admitted = plane.workloads.rows[ids[0]].admitted_at
    lost = {"node": "n-1", "stopped_at": plane.clock.now() + 60_000, "lost_ms": 60_000}
    run = {"generation": 0, "admitted_at": admitted, "started_at": admitted, "outcome": "migrate"}
    prices = {"usd_per_hour": 60.0, "on_demand_usd_per_hour": 180.0}
    plane.clock.pass_ms(3_600_000)
    plane.workloads.rows[ids[0]] = replace(
        plane.workloads.rows[ids[0]],
        runs=(Run(ended_at=plane.clock.now(), **run, **lost, **prices),),
        generation=1,
        admitted_at=plane.clock.now(),
        started_at=plane.clock.now(),
    )

    found = json.loads(terminal("describe", ids[0], "-o", "json").stdout)
    text = terminal("describe", ids[0]).stdout

    assert found["waitedMs"] == admitted - found["createdAt"]
    assert found["firstAdmittedAt"] == admitted < found["admittedAt"]
    assert found["interruptions"]["moves"] == 1
    assert found["interruptions"]["lostSeconds"] == 60 + found["interruptions"]["standstillSeconds"]
    assert "Lost to migrations:" in text
    assert "1m of work done again" in text
    assert "against on-demand" in text


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (600.0, 1200.0, "10m to 20m"),
        (600.0, 600.2, "10m"),
        (0.0, 600.0, "at most 10m"),
        (600.0, None, "at least 10m"),
    ],
)
def test_an_approximate_wait_is_a_range(least: float, most: float | None, said: str) -> None:
    answer = {
        "headline": "It waits",
        "phase": "PENDING",
        "approximateWaitSeconds": {"least": least, "most": most},
    }

    assert f"Approximate wait: {said}" in why.lines(answer, 0)


def test_ls_of_a_namespace_shows_no_other() -> None:
    terminal = Terminal(signer=ADMIN)
    terminal.plane.send(native("mine", 1))
    terminal.plane.send(native("theirs", 1, namespace="blue"), BLUE)

    shown = items(terminal("ls", "-N", "blue", "-o", "json"))

    assert [item["name"] for item in shown] == ["theirs"]
