"""Environments are whole or absent, and one process makes them."""

import threading

import pytest

from local.errors import PreparationError
from local.toolchain import environment, locked


def test_an_install_that_fails_leaves_nothing_that_could_be_used(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_NO_INDEX", "1")

    with pytest.raises(PreparationError, match=r"(?s)ministack could not be installed.*again"):
        environment(tmp_path, "ministack", print)

    assert [path.suffix for path in (tmp_path / "environments").glob("ministack-*")] == [".partial"]


def test_the_second_process_waits_and_says_so(tmp_path) -> None:
    said, order = [], []
    entered, leave = threading.Event(), threading.Event()

    def first():
        with locked(tmp_path / "build.lock", said.append):
            entered.set()
            leave.wait()
            order.append("first")

    def second():
        with locked(tmp_path / "build.lock", waited):
            order.append("second")

    def waited(text):
        said.append(text)
        leave.set()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    for thread in threads:
        thread.join()

    assert order == ["first", "second"]
    assert said == ["waiting for another process that prepares build"]
