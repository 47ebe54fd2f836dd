"""A DAG whose heavy step waits for quota, moves off spot machines, and costs no Airflow worker."""

from datetime import UTC, datetime

from airflow.sdk import DAG
from sluice.airflow import SluiceOperator

TRAIN = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "generateName": "train-",
        "labels": {"kueue.x-k8s.io/queue-name": "{{ params.queue }}"},
    },
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "python:3.11",
                        "command": ["python", "-c", "print('trained for {{ run_id }}')"],
                        "resources": {"requests": {"cpu": "1", "memory": "256Mi"}},
                    }
                ],
            }
        }
    },
}

with DAG(
    "train_nightly",
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    params={"queue": "research"},
):
    SluiceOperator(task_id="train", document=TRAIN, retries=2, poll_seconds=5)
