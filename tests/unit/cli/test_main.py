"""The entry point: help, exit codes of the process, and a quick start."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import click
import pytest
from click.testing import CliRunner
from sluice.client.errors import RequestRefusedError

from cli import main as entry
from cli.figures import seconds, span
from cli.main import VERBS, main, sluice
from tests.unit.cli.terminal import Terminal


def exit_code(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> Any:
    """The process's exit code when a verb ends like this."""

    @click.command()
    def verb() -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(entry, "sluice", verb)
    with pytest.raises(SystemExit) as ended:
        main([])
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (click.UsageError("no"), 2),
        (RequestRefusedError("no"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_process_ends_with_the_documented_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: int
) -> None:
    assert exit_code(monkeypatch, error) == code


def test_errors_go_to_stderr_with_fields_and_hint() -> None:
    result = Terminal()("get", "aaaaaaaaaaaaa")

    assert result.exit_code == 3
    assert result.stdout == ""
    assert "no workload has the id aaaaaaaaaaaaa" in result.stderr
    assert "hint:" in result.stderr


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_that_help_lists_exists(verb: str) -> None:
    if verb not in sluice.list_commands(click.Context(sluice)):
        pytest.skip(f"the module of {verb} is not part of this installation")

    result = CliRunner().invoke(sluice, [verb, "--help"])

    assert result.exit_code == 0, result.output
    assert "Usage: " in result.stdout


def test_the_module_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--version"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip()) == (0, version("sluice-batch"))


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'boto3', 'botocore', 'yaml', 'rich', 'jsonschema', 'urllib3'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "reprioritize" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_code_of_the_shell(shell: str) -> None:
    result = CliRunner().invoke(sluice, ["completion", shell])

    assert result.exit_code == 0
    assert "_SLUICE_COMPLETE" in result.stdout


def test_schemas_are_listed_and_printed() -> None:
    runner = CliRunner()

    names = runner.invoke(sluice, ["schema"]).stdout.split()

    assert "config" in names
    for name in names:
        assert '"$schema"' in runner.invoke(sluice, ["schema", name]).stdout
    assert runner.invoke(sluice, ["schema", "nothing"]).exit_code == 3


@pytest.mark.parametrize(
    ("text", "length"),
    [("90", 90), ("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("250ms", 0.25)],
)
def test_durations_are_read(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3s", "3s later"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        *[(0, "0s"), (59.4, "59s"), (60, "1m"), (192, "3m12s"), (3_600, "1h"), (20_400, "5h40m")],
        *[(86_400, "1d"), (273_600, "3d4h"), (None, "")],
    ],
)
def test_lengths_of_time_are_short(length: float | None, text: str) -> None:
    assert span(length) == text


def test_a_mistyped_command_gets_suggestions() -> None:
    result = Terminal()("whi")

    assert result.exit_code == 2
    assert "did you mean why" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (("get", "aaaaaaaaaaaaa", "-o", "json"), "ObjectNotFound", 3),
        (("wait", "aaaaaaaaaaaaa", "--output=json"), "WorkloadNotFound", 102),
        (("ls", "-ojson", "--limit", "0"), "Usage", 2),
        (("whi", "-o", "json"), "Usage", 2),
    ],
)
def test_errors_are_json_where_json_is_asked_for(
    arguments: tuple[str, ...], code: str, exit_code: int
) -> None:
    result = Terminal()(*arguments)

    error = json.loads(result.stdout)["error"]

    assert (error["code"], error["exitCode"], result.exit_code) == (code, exit_code, exit_code)
    assert error["message"]
