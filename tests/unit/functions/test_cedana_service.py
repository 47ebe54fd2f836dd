"""Cedana's HTTP API as its own tests call it, and what its answers mean to us."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import urllib3
from sluice.cedana.http_service import CedanaService, CedanaServices
from sluice.cedana.pods import ActionProgress, CedanaAction
from sluice.errors import CheckpointServiceError, CheckpointServiceRefused, NotConfigured
from sluice.ports import CatalogSnapshot

from tests.fakes import FakeClock, MemoryCatalog
from tests.unit.usecases.world import CEDANA

ACTION = "0b7f4c1e-0f0a-4d37-a5ce-0e8f1f1f0a01"


@dataclass
class Answer:
    status: int
    data: bytes


@dataclass
class Web:
    """Answers the next requests, and remembers them."""

    answers: list[Answer | Exception]
    asked: list[tuple[str, str, Any, str]] = field(default_factory=list)

    def request(
        self, method: str, url: str, *, body: bytes | None, headers: dict[str, str], redirect: bool
    ) -> Answer:
        assert not redirect, "the token is for one host"
        content = json.loads(body) if body else None
        self.asked.append((method, url, content, headers["Authorization"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_service(*answers: tuple[int, str] | Exception) -> tuple[CedanaService, Web]:
    made = [a if isinstance(a, Exception) else Answer(a[0], a[1].encode()) for a in answers]
    web = Web([*made])
    return CedanaService("https://c.test", "c-1", lambda: "token", web), web  # type: ignore[arg-type]


def test_a_checkpoint_is_asked_for_by_the_pods_uid() -> None:
    service, web = a_service((200, f'"{ACTION}"\n'))

    assert service.checkpoint("uid-1") == ACTION
    asked = {"pod_id": "uid-1", "runc_root": "/run/containerd/runc/k8s.io"}
    assert web.asked == [("POST", "https://c.test/v2/checkpoint/pod", asked, "Bearer token")]


def test_a_restore_names_the_checkpoints_action_and_the_cluster() -> None:
    service, web = a_service((200, ACTION))

    assert service.restore("a-checkpoint") == ACTION
    asked = {"action_id": "a-checkpoint", "cluster_id": "c-1", "reason": "manual"}
    assert web.asked[0][:3] == ("POST", "https://c.test/v2/restore/pod", asked)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"status": "ready"}, CedanaAction(ActionProgress.READY)),
        ({"status": "error", "details": "no CRIU"}, CedanaAction(ActionProgress.FAILED, "no CRIU")),
        ({"status": "initialized"}, CedanaAction(ActionProgress.UNDER_WAY)),
        ({"status": "checkpoint_created"}, CedanaAction(ActionProgress.UNDER_WAY)),
        ({"status": "something new"}, CedanaAction(ActionProgress.UNDER_WAY)),
    ],
)
def test_only_two_words_end_an_action(said: dict[str, str], meant: CedanaAction) -> None:
    service, _ = a_service((200, json.dumps(said)))

    assert service.look(ACTION) == meant


def test_a_pod_of_which_cedana_knows_nothing_has_no_action() -> None:
    service, _ = a_service((404, "none"), (200, ACTION))

    assert service.newest("uid-1") == ""
    assert service.newest("uid-1") == ACTION


@pytest.mark.parametrize(
    ("answer", "refused", "lasting"),
    [
        ((401, "who?"), True, False),
        ((429, "slower"), True, False),
        ((404, "no such action"), True, True),
        ((422, "no"), True, True),
        ((500, "oh"), False, False),
        ((302, "elsewhere"), False, False),
        ((200, "<html>"), False, False),
        (urllib3.exceptions.ReadTimeoutError(None, "", "late"), False, False),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_leaves_open_what_was_done_is_no_refusal(
    answer: tuple[int, str] | Exception, refused: bool, lasting: bool
) -> None:
    service, _ = a_service(answer)

    with pytest.raises(CheckpointServiceError) as told:
        service.restore("a-checkpoint")

    assert isinstance(told.value, CheckpointServiceRefused) == refused
    assert getattr(told.value, "lasting", False) == lasting
    assert "token" not in str(told.value)


def test_what_is_retired_is_found_by_its_action() -> None:
    known = [{"action_id": "other", "checkpoint_id": "cp-000000001"},
             {"action_id": ACTION, "checkpoint_id": "cp-000000002"}]  # fmt: skip
    service, web = a_service((200, json.dumps(known)), (200, ""), (200, "[]"))

    service.retire(ACTION)
    service.retire(ACTION)  # gone already

    assert [each[:2] for each in web.asked] == [
        ("GET", "https://c.test/v2/actions"),
        ("PATCH", "https://c.test/v2/checkpoints/deprecate/cp-000000002"),
        ("GET", "https://c.test/v2/actions"),
    ]


@dataclass
class Secrets:
    read: int = 0

    def get_secret_value(self, **asked: str) -> dict[str, str]:
        assert asked == {"SecretId": CEDANA["tokenSecret"]}
        self.read += 1
        return {"SecretString": f"token-{self.read}\n"}


def test_the_token_is_read_again_after_a_while_as_it_may_be_rotated() -> None:
    known = {"one": {"spec": {"cedana": CEDANA}}, "two": {"spec": {}}}
    catalog = MemoryCatalog(CatalogSnapshot(1, {"Cluster": known}))
    secrets, clock = Secrets(), FakeClock()
    services = CedanaServices(catalog, lambda: secrets, clock)

    assert services.of("one").token() == "token-1"
    assert services.of("one").token() == "token-1"
    clock.pass_ms(300_001)
    assert services.of("one").token() == "token-2"
    assert services.of("one").url == "https://cedana.test"
    with pytest.raises(NotConfigured, match="two"):
        services.of("two")
