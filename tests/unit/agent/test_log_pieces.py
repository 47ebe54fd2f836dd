"""Logs go to the bucket in pieces: none twice for nothing, never less than was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import logs
from agent.logs import LogUploader
from tests.unit.agent.test_agent import StoredObjects, a_printing_pod

KEY = "bucket/logs/w1/2/pod-1/main.part-{:04}.gz"
LINE = "2026-11-22T10:00:00.1Z stdout F {}\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIECE_BYTES", 10)
    monkeypatch.setattr(logs, "LOG_BYTES", 25)


def printing(folder: Path, *lines: str) -> dict[str, object]:
    return a_printing_pod(folder, "".join(LINE.format(line) for line in lines))


def test_only_the_last_piece_is_stored_again(tmp_path: Path) -> None:
    stored = StoredObjects()
    uploader = LogUploader(stored, (), tmp_path)
    uploader.follow(printing(tmp_path, "one", "two", "three"))
    uploader.upload()
    assert stored == {KEY.format(0): b"one\ntwo\nth", KEY.format(1): b"ree\n"}

    stored.clear()
    printing(tmp_path, "one", "two", "three", "four")
    uploader.upload()

    assert stored == {KEY.format(1): b"ree\nfour\n"}


def test_a_log_of_which_all_is_stored_that_is_kept_is_not_read_again(tmp_path: Path) -> None:
    stored = StoredObjects()
    uploader = LogUploader(stored, (), tmp_path)
    uploader.follow(printing(tmp_path, *["four"] * 9))
    uploader.upload()
    assert b"".join(stored[key] for key in sorted(stored)) == (b"four\n" * 9)[:25]

    stored.clear()
    printing(tmp_path, *["four"] * 20)
    uploader.upload()

    assert stored == {}


def test_a_file_that_was_begun_anew_takes_nothing_away(tmp_path: Path) -> None:
    stored = StoredObjects()
    uploader = LogUploader(stored, (), tmp_path)
    uploader.follow(printing(tmp_path, "one", "two"))
    uploader.upload()
    before = dict(stored)

    (log,) = tmp_path.glob("*/main/1.log")
    log.rename(log.with_name("1.log.20261122-100000"))
    pod = printing(tmp_path, "later")
    uploader.upload()
    restarted = LogUploader(stored, (), tmp_path)
    restarted.follow(pod)
    restarted.upload()

    assert stored == before


def test_a_pod_whose_end_nobody_told_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("agent.logs.time.monotonic", lambda: now[0])
    uploader = LogUploader(StoredObjects(), (), tmp_path)
    pod = printing(tmp_path, "one")
    uploader.follow(pod)
    now[0] += 10 * logs.FORGOTTEN_SECONDS
    uploader.upload()
    assert uploader.pods, "its folder is there"

    (tmp_path / "default_pod-1_uid-1").rename(tmp_path / "gone")
    now[0] += logs.FORGOTTEN_SECONDS + 1
    uploader.upload()
    assert uploader.pods == {}

    uploader.follow(pod)
    uploader.upload()
    assert uploader.pods, "one that has not started yet is waited for"
