"""CRIU's own reason for a dump that failed, as the agent finds it on the machine."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from agent import criu_log, orders
from agent.kubelet import CheckpointRefusedError
from agent.saving import Saver
from tests.unit.agent.test_agent import ORDERED, a_pod

LOG = """\
(00.000034) Version: 4.2.1 (gitid 0)
(00.000300) Error (criu/cr-dump.c:2111): Can't raise RLIMIT_NOFILE
(00.016241) 	type ERR 1
(00.016300) Error (criu/files-ext.c:96): Can't dump file 5 of that type [0] (anon_inode:[io_uring])
(00.016330) Error (criu/cr-dump.c:1669): Dump files (pid: 71) failed with -1
(00.016400) Error (criu/cr-dump.c:2111): Dumping FAILED.
"""
REASON = (
    "Can't dump file 5 of that type [0] (anon_inode:[io_uring]);"
    " Dump files (pid: 71) failed with -1"
)
ANSWER = (
    "HTTP 500: checkpointing failed: criu failed: type NOTIFY errno 0 log file: {path}: unknown"
)


class RefusingKubelet:
    def __init__(self, words: str) -> None:
        self.words = words

    def checkpoint(self, namespace: str, pod: str, container: str, *, seconds: int) -> Path:
        raise CheckpointRefusedError(self.words)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("run/task/c1/criu-dump.log", ANSWER.format(path="/run/task/c1/criu-dump.log")),
        (f"{criu_log.CONTAINERS}/c1/dump.log", "HTTP 500: no words"),
    ],
)
def test_the_answer_names_crius_reason(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(LOG)
    pod = a_pod(**ORDERED)
    pod["status"]["containerStatuses"] = [{"containerID": "containerd://c1"}]
    order = orders.order_of(pod)
    assert order is not None
    kubelet = RefusingKubelet(words)

    answer = Saver(lambda _: kubelet, MagicMock(), lambda: None, (), host=tmp_path).save(order)

    assert f'"error": "CRIU refuses it: {REASON}"' in answer


def test_without_a_log_the_kubelets_words_have_to_do(tmp_path: Path) -> None:
    assert criu_log.explain("HTTP 500: /run/c1/criu-dump.log", "c1", tmp_path) == ""
    (tmp_path / "run/c1").mkdir(parents=True)
    (tmp_path / "run/c1/criu-dump.log").write_text("(00.1) Dumping finished successfully\n")
    assert criu_log.explain("HTTP 500: /run/c1/criu-dump.log", "", tmp_path) == ""
