"""Processes of a stack are found by their mark, and nothing else is touched."""

import os
import subprocess
from pathlib import Path

import pytest

from local.strays import MARK, kill_marked, marked


@pytest.fixture
def sleeper():
    started = []

    def start(**marks):
        process = subprocess.Popen(["sleep", "600"], env=os.environ | marks)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_only_processes_with_the_mark_of_this_stack_are_killed(sleeper, tmp_path) -> None:
    mine = sleeper(**{MARK: str(tmp_path)})
    of_another_stack = sleeper(**{MARK: str(tmp_path / "other")})
    unmarked = sleeper()

    assert kill_marked(tmp_path) == 1

    assert mine.wait(10) < 0
    assert of_another_stack.poll() is None
    assert unmarked.poll() is None


def test_a_stack_without_processes_has_none() -> None:
    assert marked(Path("/no/such/stack")) == []
