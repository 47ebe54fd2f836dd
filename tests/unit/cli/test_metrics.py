"""`sluice metrics`: Prometheus reads it, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from sluice.client.api import ApiClient
from sluice.client.errors import ControlPlaneUnavailableError
from sluice.client.transport import ApiResponse

from cli.app import App
from cli.commands.metrics import application
from local.settings import CLONE
from tests.unit.api.control_plane import ADMIN, native
from tests.unit.cli.terminal import Terminal

HTTP = urllib3.PoolManager(retries=False)
DASHBOARD = CLONE / "examples/grafana/sluice.json"


@pytest.fixture
def terminal() -> Terminal:
    made = Terminal(signer=ADMIN)
    running = made.plane.send(native("train", 4))
    made.plane.run(running)
    made.plane.send(native("takes-the-rest", 64))
    return made


def samples(text: str) -> dict[tuple[str, frozenset[str]], float]:
    """Value by name and the labels' values."""
    return {
        (each.name, frozenset(each.labels.values())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


@contextmanager
def listening(application: Any) -> Iterator[str]:
    """The address of its metrics on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        server.should_exit = True
        thread.join(10)


def test_quota_use_and_waiting_of_each_queue(terminal: Terminal) -> None:
    result = terminal("metrics")

    assert result.exit_code == 0
    found = samples(result.stdout)
    where = frozenset({"company", "red-cq", "spot", "cpu"})
    assert found["sluice_cluster_queue_nominal_quota", where] == 64
    assert found["sluice_cluster_queue_resource_usage", where] == 68
    assert found["sluice_admitted_active_workloads", frozenset({"company", "red-cq"})] == 2
    assert found["sluice_cluster_queue_status", frozenset({"company", "red-cq", "active"})] == 1
    assert found["sluice_workloads", frozenset({"RUNNING"})] == 1


def test_a_count_that_is_only_a_bound_is_a_number(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.usecases.reading.accounts.COUNTED", 1)
    for name in ("waits", "waits-too"):
        terminal.plane.send(native(name, 64))

    assert samples(terminal("metrics").stdout)[
        "sluice_pending_workloads", frozenset({"company", "red-cq"})
    ]


def test_the_dashboard_asks_for_every_metric_and_no_other(terminal: Terminal) -> None:
    offered = {
        line.split()[2] for line in terminal("metrics").stdout.splitlines() if line[:6] == "# TYPE"
    }
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"sluice_\w+", target["expr"])
    }

    assert asked == offered


def test_the_labels_of_the_dashboard_are_those_of_the_metrics(terminal: Terminal) -> None:
    labels = {
        family.name: set(sample.labels)
        for family in text_string_to_metric_families(terminal("metrics").stdout)
        for sample in family.samples
    }

    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            (name, *_) = re.findall(r"sluice_\w+", target["expr"])
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert name not in labels or shown <= labels[name], panel["title"]


def test_a_scrape_asks_anew_and_fails_while_the_api_is_silent(terminal: Terminal) -> None:
    app = App()
    app.__dict__["api"] = ApiClient(terminal.carry)
    with listening(application(app)) as address:
        first = HTTP.request("GET", address)
        terminal.plane.send(native("another", 1))
        second = HTTP.request("GET", address)

        def silent(_: object) -> ApiResponse:
            raise ControlPlaneUnavailableError("it does not answer")

        app.__dict__["api"] = ApiClient(silent)
        failed = HTTP.request("GET", address)

    assert first.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert samples(first.data.decode()) != samples(second.data.decode())
    assert (failed.status, failed.data) == (503, b"it does not answer")
