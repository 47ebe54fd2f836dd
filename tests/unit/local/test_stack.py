"""The state folder: whose it is, what is forgotten, and whether somebody is at work in it."""

import fcntl
import json

import pytest

from local.errors import StackError
from local.settings import Layout, Settings
from local.stack import (
    down,
    forget,
    is_running,
    make_folder,
    require_whole,
    restart_part,
    set_aside,
    status,
)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(StackError, match="neither empty nor the folder of a stack"):
        make_folder(Layout(tmp_path))

    assert down(tmp_path) is False
    assert (tmp_path / "thesis.tex").exists()


def test_an_empty_folder_and_the_folder_of_a_stack_are_taken(tmp_path) -> None:
    layout = Layout(tmp_path / "new")

    make_folder(layout)
    (layout.state / "settings.json").write_text("{}")
    make_folder(layout)

    assert layout.lock.exists()


def test_forgetting_spares_the_locks_and_what_is_kept(tmp_path) -> None:
    layout = Layout(tmp_path)
    make_folder(layout)
    (layout.state / "up.lock").touch()
    for folder in (layout.data, layout.logs):
        folder.mkdir()
        (folder / "file").touch()
    layout.kubeconfig.touch()

    forget(layout, but=("data",))

    assert {path.name for path in tmp_path.iterdir()} == {"lock", "up.lock", "data"}
    assert (layout.data / "file").exists()


def test_an_up_that_does_not_end_leaves_what_was_kept(tmp_path) -> None:
    layout = Layout(tmp_path)
    layout.data.mkdir()
    (layout.data / "table").write_text("kept")

    set_aside(layout)
    (layout.data / "table").write_text("half of a start")
    set_aside(layout)

    assert (layout.data / "table").read_text() == "kept"
    assert (layout.spare / "table").read_text() == "kept"


def test_a_stack_runs_as_long_as_its_lock_is_held(tmp_path) -> None:
    layout = Layout(tmp_path)
    assert not is_running(layout)
    make_folder(layout)
    assert not is_running(layout)

    with layout.lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_running(layout)
    assert not is_running(layout)


def test_without_a_stack_there_is_nothing_to_show_or_to_restart(tmp_path) -> None:
    assert status(tmp_path) == []
    with pytest.raises(StackError, match="sluice local up"):
        restart_part(tmp_path, "karpenter")


def test_settings_survive_the_way_to_the_supervisor(tmp_path) -> None:
    import json

    settings = Settings(tmp_path, tmp_path / "cache", time_scale=0.1, aws_port=4566)
    (tmp_path / "settings.json").write_text(json.dumps(settings.document()))

    assert Settings.read(tmp_path / "settings.json") == settings


def test_a_stack_with_a_part_that_stays_down_is_not_taken_for_a_running_one(tmp_path) -> None:
    layout = Layout(tmp_path)
    make_folder(layout)
    part = {"name": "aws", "state": "failed"}
    layout.parts.write_text(json.dumps([part, {"name": "etcd", "state": "ready"}]))

    with layout.lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StackError, match=r"aws failed.*sluice local down"):
            require_whole(layout)
