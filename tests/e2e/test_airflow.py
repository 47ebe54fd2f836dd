"""Airflow's own scheduler and triggerer run tasks that are workloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.settings import CLONE
from tests.e2e.airflow import Airflow, airflow
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.soak]
DAGS = """
from airflow.sdk import DAG
from sluice.airflow import SluiceOperator, SluiceSensor

def job(command):
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"generateName": "airflow-", "labels": {"kueue.x-k8s.io/queue-name": "QUEUE"}},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "python:3.11",
                            "command": ["python3", "-u", "-c", command],
                            "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}]}}},
    }

HELLO = "import time; print('hello from {{ run_id }}'); time.sleep({{ dag_run.conf['seconds'] }})"
with DAG("deferred", schedule=None):
    SluiceOperator(task_id="job", document=job(HELLO), poll_seconds=1)
with DAG("worker", schedule=None):
    SluiceOperator(
        task_id="job", document=job(HELLO), deferrable=False, retries=1, retry_delay=1
    )
with DAG("failing", schedule=None):
    SluiceOperator(
        task_id="job", document=job("raise SystemExit(3)"), poll_seconds=1, retries=1, retry_delay=1
    )
with DAG("refused", schedule=None):
    SluiceOperator(task_id="job", document={"apiVersion": "batch/v1", "kind": "Job"}, retries=3)
with DAG("sensor", schedule=None):
    SluiceSensor(task_id="wait", workload="{{ dag_run.conf['workload'] }}", poll_seconds=1)
"""


@pytest.fixture(scope="module")
def flow(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    queue = stack.queue("8")
    with airflow(tmp_path_factory.mktemp("airflow") / "home", stack) as made:
        (made.home / "dags/dags.py").write_text(DAGS.replace("QUEUE", queue))
        example = (CLONE / "examples/airflow/train_nightly.py").read_text()
        (made.home / "dags/example.py").write_text(
            example.replace('"queue": "research"', f'"queue": "{queue}"')
        )
        yield made


def workloads(flow: Airflow) -> dict[str, dict[str, Any]]:
    listed = json.loads(flow.stack.sluice("ls", "-o", "json"))
    return {each["id"]: each for each in listed["items"]}


def ends(flow: Airflow, dag: str, run: str, state: str, seconds: float = 150) -> None:
    found = until(
        lambda: f"{dag} {state}: {flow.state(dag, run)}\n{flow.log(dag, run, 'job')}",
        lambda: (now := flow.state(dag, run)) in {"success", "failed"} and now,
        seconds=seconds,
    )
    assert found == state, flow.log(dag, run, "job")


def running(flow: Airflow, before: set[str]) -> str:
    """The id of the one workload that runs and did not exist before."""

    def found() -> list[str]:
        rows = workloads(flow)
        return [i for i in rows.keys() - before if rows[i]["phase"] == "RUNNING"]

    (only,) = until("the job runs", found)
    return only


def test_a_deferred_task_ends_as_its_workload_and_shows_its_log(flow: Airflow) -> None:
    before = set(workloads(flow))

    flow.begin("deferred", "first", seconds=3)
    ends(flow, "deferred", "first", "success")

    (made,) = workloads(flow).keys() - before
    text = flow.log("deferred", "first", "job")
    assert f"submitted workload {made}" in text
    assert "hello from first" in text


def test_a_restart_of_scheduler_and_triggerer_finds_the_workload(flow: Airflow) -> None:
    before = set(workloads(flow))
    flow.begin("deferred", "restarted", seconds=15)
    made = running(flow, before)

    for part in ("scheduler", "triggerer"):
        flow.kill(part)
        flow.start(part)

    ends(flow, "deferred", "restarted", "success")
    assert workloads(flow).keys() - before == {made}


def test_a_worker_that_dies_is_followed_by_one_that_finds_the_workload(flow: Airflow) -> None:
    before = set(workloads(flow))
    flow.begin("worker", "killed", seconds=20)
    made = running(flow, before)

    flow.kill("scheduler")  # with LocalExecutor its workers are its children
    flow.start("scheduler")

    ends(flow, "worker", "killed", "success")
    assert workloads(flow).keys() - before == {made}
    assert f"workload {made} is there" in flow.log("worker", "killed", "job")


@pytest.mark.parametrize("dag", ["deferred", "worker"])
def test_ending_the_run_cancels_the_workload(flow: Airflow, dag: str) -> None:
    before = set(workloads(flow))
    flow.begin(dag, "ended", seconds=300)
    made = running(flow, before)

    flow.fail(dag, "ended")

    until("it is cancelled", lambda: workloads(flow)[made]["phase"] == "CANCELLED")


def test_the_retry_of_a_failed_workload_is_another_one(flow: Airflow) -> None:
    before = set(workloads(flow))

    flow.begin("failing", "twice")
    ends(flow, "failing", "twice", "failed")

    rows = workloads(flow)
    made = rows.keys() - before
    assert [rows[each]["phase"] for each in made] == ["FAILED", "FAILED"]


def test_what_is_refused_is_not_tried_again(flow: Airflow) -> None:
    flow.begin("refused", "once")
    ends(flow, "refused", "once", "failed", seconds=60)

    assert flow.task("refused", "once", "job")["try_number"] == 1


def test_a_sensor_waits_for_a_workload_of_others(flow: Airflow, tmp_path: Path) -> None:
    before = set(workloads(flow))
    flow.begin("deferred", "watched", seconds=15)
    made = running(flow, before)

    flow.begin("sensor", "watching", workload=made)

    ends(flow, "sensor", "watching", "success")
    assert workloads(flow)[made]["phase"] == "SUCCEEDED"


def test_the_example_runs(flow: Airflow) -> None:
    flow.begin("train_nightly", "by-hand")

    ends(flow, "train_nightly", "by-hand", "success")
