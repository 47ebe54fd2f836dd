"""`checkpoint`, `checkpoints`, `migrate`, `restore`, `drill`: wishes about one running workload."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner, Result
from sluice.client.api import ApiClient
from sluice.client.errors import NotDeployedError
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations.checkpointing import Checkpoint, Part, SaveFailure
from sluice.core.migrations.interruption import UserRequest, read_event
from sluice.ports import Archive

from cli.app import App
from cli.main import sluice
from tests.unit.api.control_plane import BLUE, native
from tests.unit.cli.terminal import Terminal, items

GB = 10**9


def a_terminal(mode: str = "kubelet") -> tuple[Terminal, str]:
    """One running workload that keeps checkpoints."""
    terminal = Terminal()
    document = native("train", 4)
    document["spec"]["checkpoint"] = {"mode": mode}
    workload_id = terminal.plane.send(document)
    terminal.plane.run(workload_id)
    return terminal, workload_id


def saves(terminal: Terminal, workload_id: str, n: int, **fields: Any) -> Checkpoint:
    """The n-th checkpoint of generation 0, whole in the bucket."""
    uri = f"s3://b/checkpoints/{n}.tar"
    made = Checkpoint(
        workload_id, 0, uri, terminal.plane.clock.now() + n, CheckpointMode.KUBELET, n * GB,
        took_ms=n * 1_000, node=f"node-{n}",
    )  # fmt: skip
    terminal.plane.migrations.keep(replace(made, **fields), retain=9)
    terminal.plane.archives.rows[uri] = Archive(n * GB, "AES256")
    return made


def wishes(terminal: Terminal) -> list[UserRequest]:
    """What the function of interruptions understands of what was sent."""
    heard = [read_event(each) for each in terminal.plane.interruptions.sent]
    return [each for each in heard if isinstance(each, UserRequest)]


@pytest.mark.parametrize(("verb", "moves"), [("checkpoint", False), ("migrate", True)])
def test_a_wish_goes_the_way_of_notices(verb: str, moves: bool) -> None:
    terminal, workload_id = a_terminal()

    result = terminal(verb, workload_id)

    assert result.exit_code == 0, result.output
    (wish,) = wishes(terminal)
    assert (wish.workload, wish.moves, wish.checkpoint) == (workload_id, moves, "")
    assert "Red" in wish.by
    assert wish.at == terminal.plane.clock.now()


@pytest.mark.parametrize("verb", ["checkpoint", "migrate", "restore"])
def test_what_does_not_run_has_nothing_to_save(verb: str) -> None:
    terminal = Terminal()
    terminal.plane.run(terminal.plane.send(native("big", 96)))
    waiting = terminal.plane.send(native("waiting", 96))

    result = terminal(verb, waiting)

    assert result.exit_code == 5
    assert "only running ones" in result.stderr
    assert wishes(terminal) == []


def test_what_keeps_no_checkpoints_says_how_it_could() -> None:
    terminal, workload_id = a_terminal("none")

    result = terminal("checkpoint", workload_id)

    assert result.exit_code == 5
    assert "mode: application" in result.stderr


def test_workloads_of_others_are_not_there() -> None:
    terminal, workload_id = a_terminal()
    terminal.signer = BLUE

    for verb in ("checkpoint", "checkpoints", "migrate", "restore"):
        assert terminal(verb, workload_id).exit_code in (3, 102)
    assert wishes(terminal) == []


def test_checkpoints_tell_their_lineage_newest_first() -> None:
    terminal, workload_id = a_terminal()
    first = saves(terminal, workload_id, 1)
    saves(terminal, workload_id, 2, generation=1, parent=first.source)
    saves(terminal, workload_id, 3, generation=2, parent="s3://b/long-gone.tar")

    listed = items(terminal("checkpoints", workload_id, "-o", "json"))
    table = terminal("checkpoints", workload_id).stdout

    assert [each["uri"][-5:] for each in listed] == ["3.tar", "2.tar", "1.tar"]
    assert [each["from"].partition(", ")[2] or each["from"] for each in listed] == [
        "s3://b/long-gone.tar",
        "generation 0",
        "the beginning",
    ]
    assert table.splitlines()[0].split() == [
        "TIME", "GEN", "DRIVER", "MB", "TOOK", "NODE", "FROM", "ADDRESS",
    ]  # fmt: skip


def test_a_checkpoint_from_which_a_run_could_not_start_says_why() -> None:
    terminal, workload_id = a_terminal()
    made = saves(terminal, workload_id, 1)
    terminal.plane.migrations.fail(workload_id, made.source, 1, "StartError: another CPU")

    table = terminal("checkpoints", workload_id).stdout

    assert "s3://b/checkpoints/1.tar (failed 1×: StartError: another CPU)" in table


def test_the_parts_of_the_newest_set_are_shown_below() -> None:
    terminal, workload_id = a_terminal()
    folder = "s3://b/checkpoints/w/0/move-0/"
    parts = tuple(Part(n, f"{folder}{n}.tar", GB, node=f"node-{n}") for n in ("0", "1"))
    saves(terminal, workload_id, 2, uri=folder, node="", parts=parts)

    first, *_, before_last, last = terminal("checkpoints", workload_id).stdout.splitlines()

    assert "TOOK" in first
    assert [line.split() for line in (before_last, last)] == [
        [n, "1000.0", f"node-{n}", f"{folder}{n}.tar"] for n in ("0", "1")
    ]
    assert "2 nodes" in terminal("checkpoints", workload_id).stdout


def test_no_checkpoints_is_an_empty_list_and_a_hint() -> None:
    terminal, workload_id = a_terminal()

    assert items(terminal("checkpoints", workload_id, "-o", "json")) == []
    assert "no checkpoints" in terminal("checkpoints", workload_id).stderr


@pytest.mark.parametrize(
    ("chosen", "number"), [((), 2), (("--from", "s3://b/checkpoints/1.tar"), 1)]
)
def test_a_restore_starts_from_the_newest_or_the_one_that_is_named(
    chosen: tuple[str, ...], number: int
) -> None:
    terminal, workload_id = a_terminal()
    saves(terminal, workload_id, 1)
    saves(terminal, workload_id, 2)

    result = terminal("restore", workload_id, *chosen)

    assert result.exit_code == 0, result.output
    (wish,) = wishes(terminal)
    assert (wish.moves, wish.checkpoint) == (True, f"s3://b/checkpoints/{number}.tar")


def test_a_dry_run_says_what_is_there_and_moves_nothing() -> None:
    terminal, workload_id = a_terminal()
    saves(terminal, workload_id, 2)

    result = terminal("restore", workload_id, "--dry-run")

    assert "would start again from s3://b/checkpoints/2.tar: 2000.0 MB, AES256" in result.stdout
    assert wishes(terminal) == []


@pytest.mark.parametrize(
    ("archive", "why"), [(None, "is gone"), (Archive(7, "AES256"), "is 7 of 1000000000 bytes")]
)
def test_an_archive_that_is_not_whole_is_refused(archive: Archive | None, why: str) -> None:
    terminal, workload_id = a_terminal()
    saves(terminal, workload_id, 1)
    terminal.plane.archives.rows.clear()
    if archive:
        terminal.plane.archives.rows["s3://b/checkpoints/1.tar"] = archive

    for options in ((), ("--dry-run",)):
        result = terminal("restore", workload_id, *options)
        assert result.exit_code == 5
        assert why in result.stderr
    assert wishes(terminal) == []


def test_a_checkpoint_that_nobody_knows_is_refused() -> None:
    terminal, workload_id = a_terminal()

    result = terminal("restore", workload_id, "--from", "s3://b/else.tar")

    assert result.exit_code == 5
    assert "no checkpoint s3://b/else.tar" in result.stderr


@dataclass
class FakeAWS:
    """EC2 and FIS of an account, and the parameter with the template."""

    terminal: Terminal
    calls: list[tuple[str, Any]] = field(default_factory=list)
    refuses: str = ""
    template: str = "EXT123"
    states: tuple[str, ...] = ("pending", "initiating", "running")
    region: str = "eu-west-1"

    def client(self, service: str) -> FakeAWS:
        assert service in ("ec2", "fis")
        return self

    def published(self, parameter: str) -> Any:
        assert parameter == "drill"
        if not self.template:
            raise NotDeployedError("no parameter")
        return SimpleNamespace(value=self.template)

    def create_tags(self, **request: Any) -> None:
        self.calls.append(("tag", request["Resources"]))

    def delete_tags(self, **request: Any) -> None:
        self.calls.append(("untag", request["Resources"]))

    def start_experiment(self, **request: Any) -> Any:
        if self.refuses:
            raise ClientError({"Error": {"Code": self.refuses, "Message": "no"}}, "StartExperiment")
        self.calls.append(("start", request["experimentTemplateId"]))
        return {"experiment": {"id": "EXP1"}}

    def get_experiment(self, **request: Any) -> Any:
        """The next of its states, which its action shares."""
        self.calls.append(("look", request["id"]))
        now, *rest = self.states
        self.states = tuple(rest) or (now,)
        state = {"status": now, "reason": "Target resolution returned empty set"}
        acts = {"interrupt": {"state": {"status": "cancelled" if now == "failed" else now}}}
        return {"experiment": {"state": state, "actions": acts}}

    def describe_instances(self, **request: Any) -> Any:
        known = request["Filters"][0]["Values"] == ["ip-10-0-0-7.ec2.internal"]
        return {"Reservations": [{"Instances": [{"InstanceId": "i-7"}]}] if known else []}

    def run(self, *arguments: str) -> Result:
        app = App()
        app.__dict__["aws"] = self
        app.__dict__["settings"] = SimpleNamespace(
            endpoint_url=SimpleNamespace(value=""), name=SimpleNamespace(value="sluice")
        )
        app.__dict__["api"] = ApiClient(self.terminal.carry)
        return CliRunner().invoke(sluice, ["drill", *arguments], obj=app)


@pytest.mark.parametrize("target", ["i-7", "ip-10-0-0-7.ec2.internal", "workload"])
def test_a_drill_on_aws_marks_one_instance_for_as_long_as_it_takes(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.commands.drill.POLL_SECONDS", 0)
    terminal, workload_id = a_terminal()
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "red",
            "labels": {"sluice.dev/workload": workload_id, "sluice.dev/generation": "0"},
        },
        "spec": {"nodeName": "node-7", "containers": []},
    }  # fmt: skip
    terminal.plane.kubernetes.create(pod)
    row = InventoryRow("i-7", "node-7", capacity_type="spot")
    terminal.plane.nodes.put_many("batch-1", [row])
    aws = FakeAWS(terminal)

    result = aws.run(workload_id if target == "workload" else target)

    assert result.exit_code == 0, result.output
    assert "i-7 is interrupted by experiment EXP1" in result.stdout
    looks = [("look", "EXP1")] * 3
    assert aws.calls == [("tag", ["i-7"]), ("start", "EXT123"), *looks, ("untag", ["i-7"])]


def test_a_drill_that_is_refused_leaves_no_tag() -> None:
    terminal, _ = a_terminal()
    aws = FakeAWS(terminal, refuses="AccessDeniedException")

    result = aws.run("i-7")

    assert result.exit_code != 0
    assert aws.calls[-1] == ("untag", ["i-7"])


@pytest.mark.parametrize("end", ["failed", "stopped"])
def test_a_drill_that_never_begins_says_why_and_leaves_no_tag(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.commands.drill.POLL_SECONDS", 0)
    aws = FakeAWS(a_terminal()[0], states=("pending", end))

    result = aws.run("i-7")

    assert result.exit_code != 0
    assert f"EXP1 {end}: Target resolution returned empty set" in result.stderr
    assert aws.calls[-1] == ("untag", ["i-7"])


def test_a_deployment_without_drills_says_which_setting_is_missing() -> None:
    aws = FakeAWS(a_terminal()[0], template="")

    result = aws.run("i-7")

    assert result.exit_code != 0
    assert "drills: true" in result.stderr
    assert aws.calls == []


@pytest.mark.parametrize("target", ["ip-10-0-0-8.ec2.internal", "workload"])
def test_a_drill_on_nothing_says_so(target: str) -> None:
    terminal, workload_id = a_terminal()
    aws = FakeAWS(terminal)

    result = aws.run(workload_id if target == "workload" else target)

    assert result.exit_code != 0
    assert aws.calls == []


def test_on_aws_no_machine_ends_without_notice() -> None:
    aws = FakeAWS(a_terminal()[0])

    assert aws.run("i-7", "--without-notice").exit_code == 2
    assert aws.calls == []


def said(terminal: Terminal, workload_id: str, label: str = "Can be saved") -> str:
    """The line of `sluice describe` with this label."""
    lines = terminal("describe", workload_id).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{label}:")]
    return line.partition(":")[2].strip()


def test_describe_says_whether_it_can_be_saved() -> None:
    terminal, workload_id = a_terminal()
    assert said(terminal, workload_id).startswith("not known before")

    saves(terminal, workload_id, 2)
    assert said(terminal, workload_id).startswith("yes, 2000 MB, 2.0 s")

    failure = SaveFailure(terminal.plane.clock.now() + 9, 0, "it uses io_uring: CRIU refuses it")
    terminal.plane.migrations.refuse(workload_id, failure)
    assert said(terminal, workload_id).startswith("no: it uses io_uring: CRIU refuses it")
    assert said(terminal, workload_id, "Connections") == "closed by a checkpoint"


def test_describe_says_nothing_of_it_where_nothing_is_dumped() -> None:
    terminal, workload_id = a_terminal("none")

    assert "Can be saved" not in terminal("describe", workload_id).stdout
