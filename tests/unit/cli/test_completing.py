"""Names of workloads, queues and clusters are completed; a silent api completes nothing."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete
from sluice.client.api import ApiClient
from sluice.client.errors import ControlPlaneUnavailableError

from cli.app import App
from cli.main import sluice
from tests.unit.api.control_plane import ADMIN, RED, Signer, native
from tests.unit.cli.terminal import Terminal


def complete(monkeypatch: pytest.MonkeyPatch, terminal: Terminal, *words: str) -> list[str]:
    """What the shell is offered after `words`, the last of which is incomplete."""
    monkeypatch.setattr(App, "api", property(lambda _: ApiClient(terminal.carry)))
    *whole, last = words
    offered = ShellComplete(sluice, {}, "sluice", "_SLUICE_COMPLETE").get_completions(whole, last)
    return [each.value for each in offered]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("cancel", "tra"), ["train"]),
        (("why", "tra"), ["train"]),
        (("ls", "-q", "red/"), ["red/batch"]),
        (("run", "--queue", "no"), []),
    ],
)
def test_names_are_completed(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], found: list[str]
) -> None:
    terminal = Terminal(signer=RED)
    terminal.plane.send(native("train", 1))

    assert complete(monkeypatch, terminal, *words) == found


def test_ids_are_completed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(signer=RED)
    identity = terminal.plane.send(native("train", 1))

    assert complete(monkeypatch, terminal, "logs", identity[:4]) == [identity]


@pytest.mark.parametrize("signer", [ADMIN])
def test_clusters_are_completed(monkeypatch: pytest.MonkeyPatch, signer: Signer) -> None:
    terminal = Terminal(signer=signer)
    (cluster,) = terminal.plane.catalog.snapshot().of("Cluster")

    assert complete(monkeypatch, terminal, "cordon", cluster[:1]) == [cluster]


def test_without_an_api_nothing_is_completed_and_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(_: object) -> ApiClient:
        raise ControlPlaneUnavailableError("it does not answer")

    monkeypatch.setattr(App, "api", property(silent))

    offered = ShellComplete(sluice, {}, "sluice", "_SLUICE_COMPLETE").get_completions(["why"], "")

    assert offered == []
