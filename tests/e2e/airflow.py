"""A real Airflow from its locked environment: api server, dag processor, scheduler, triggerer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from local import toolchain
from local.settings import CLONE, default_cache
from tests.e2e.stack import Stack, until

PARTS = {
    "api-server": ("api-server", "--host", "127.0.0.1", "--workers", "1", "--port"),
    "dag-processor": ("dag-processor",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Airflow:
    """One installation below `home`; its programs are children of the test and end with it."""

    home: Path
    stack: Stack
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    suffix: str = field(default_factory=lambda: f"-{uuid.uuid4().hex[:6]}")
    """Of the names of runs: a stack that is used again knows the runs of before."""

    def __post_init__(self) -> None:
        self.bin = toolchain.environment(default_cache(), "airflow", print) / "bin"
        (self.home / "dags").mkdir(parents=True)
        self.environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": str(CLONE / "layers/sluice/python"),
            "SLUICE_STATE": str(self.stack.state),
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of-this-test-and-long-enough-for-its-algorithm-512",
            "AIRFLOW__API__SECRET_KEY": "of-this-test",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            # Tasks of a scheduler that died are taken over in seconds, not in minutes.
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
        }

    def command(self, *arguments: str) -> str:
        return subprocess.run(
            [self.bin / "airflow", *arguments],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
        ).stdout

    def start(self, name: str) -> None:
        arguments = [*PARTS[name], *([str(self.port)] if name == "api-server" else [])]
        with (self.home / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [self.bin / "airflow", *arguments],
                env=self.environment,
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Without a chance to tidy up, with all of its children."""
        process = self.running.pop(name)
        for each in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()
        process.wait(30)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    @property
    def token(self) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/auth/token", timeout=30
        ) as answer:
            return str(json.load(answer)["access_token"])

    def begin(self, dag: str, run: str, **conf: Any) -> None:
        """Unpause the DAG once it is known, and start one run."""

        def known() -> bool:
            try:
                return bool(self.ask("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False}))
            except OSError:
                return False

        until(f"Airflow knows {dag}", known, seconds=120)
        body = {"dag_run_id": run + self.suffix, "logical_date": None, "conf": conf}
        self.ask("POST", f"/api/v2/dags/{dag}/dagRuns", body)

    def fail(self, dag: str, run: str) -> None:
        """What marking a run as failed does on Airflow's page."""
        self.ask("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run}{self.suffix}", {"state": "failed"})

    def state(self, dag: str, run: str) -> str:
        return str(self.ask("GET", f"/api/v2/dags/{dag}/dagRuns/{run}{self.suffix}")["state"])

    def task(self, dag: str, run: str, task: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(
            "GET", f"/api/v2/dags/{dag}/dagRuns/{run}{self.suffix}/taskInstances/{task}"
        )
        return found

    def log(self, dag: str, run: str, task: str) -> str:
        """What Airflow's page shows of the task's tries."""
        folder = (
            self.home / "logs" / f"dag_id={dag}" / f"run_id={run}{self.suffix}" / f"task_id={task}"
        )
        return "".join(file.read_text() for file in sorted(folder.rglob("*.log*")))


@contextmanager
def airflow(home: Path, stack: Stack) -> Iterator[Airflow]:
    made = Airflow(home, stack)
    made.command("db", "migrate")
    try:
        for part in PARTS:
            made.start(part)
        yield made
    finally:
        for part in tuple(made.running):
            made.kill(part)
