"""`replay --root`: a pass of the deployed system is decided again, and the same comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.api.control_plane import ADMIN, COMPANY, RED, ControlPlane, native
from tests.unit.cli.terminal import Terminal


@pytest.fixture
def terminal() -> Terminal:
    """Two passes over the company: each admitted one job."""
    terminal = Terminal(ControlPlane(COMPANY), ADMIN)
    for name in ("one", "two"):
        terminal.plane.send(native(name, 1), RED)
    return terminal


def test_the_newest_pass_or_any_other_gives_the_same_plan_again(terminal: Terminal) -> None:
    newest = terminal("replay", "--root", "company")
    first = terminal("replay", "--root", "company", "--version", "1")

    assert (newest.exit_code, first.exit_code) == (0, 0)
    assert newest.stdout.startswith("company version 2: same plan sha256:")
    assert "0 released, 0 expired, 1 admitted, 0 preempted; 1 waited" in first.stdout


def test_recorded_passes_are_listed_and_saved_to_be_replayed_from_a_file(
    terminal: Terminal, tmp_path: Path
) -> None:
    listed = terminal("replay", "--root", "company", "--list").stdout.splitlines()
    file = tmp_path / "pass.json"
    saved = terminal("replay", "--root", "company", "--version", "1", "--save", str(file))

    assert [line.split()[0] for line in listed] == ["VERSION", "1", "2"]
    assert saved.exit_code == 0
    assert terminal("replay", str(file)).exit_code == 0


def test_another_plan_is_an_error_with_the_differences(terminal: Terminal) -> None:
    texts = terminal.plane.recordings.texts
    document = json.loads(texts["company", 1])
    other = json.loads(texts["company", 2])
    document |= {"plan": other["plan"], "planDigest": other["planDigest"]}
    texts["company", 1] = json.dumps(document)

    result = terminal("replay", "--root", "company", "--version", "1")

    assert result.exit_code == 1
    assert "plan.admitted[0].step[0]: recorded" in result.stdout


def test_a_recording_that_is_not_the_audited_one_is_refused(terminal: Terminal) -> None:
    texts = terminal.plane.recordings.texts
    texts["company", 1] = texts["company", 2]

    result = terminal("replay", "--root", "company", "--version", "1")

    assert result.exit_code != 0
    assert "not the audited one" in result.stderr


def test_what_was_not_recorded_or_is_kept_no_more_is_told(terminal: Terminal) -> None:
    terminal.plane.recordings.texts.clear()

    gone = terminal("replay", "--root", "company", "--version", "1")
    never = terminal("replay", "--root", "company", "--version", "99")
    nothing = terminal("replay", "--root", "elsewhere")

    assert "is not kept any more" in gone.stderr
    assert "has no version 99" in never.stderr
    assert "no pass over elsewhere was recorded in the last month" in nothing.stderr
    assert {gone.exit_code, never.exit_code, nothing.exit_code} == {3}


def test_recordings_are_for_administrators(terminal: Terminal) -> None:
    terminal.signer = RED

    assert terminal("replay", "--root", "company").exit_code == 4
