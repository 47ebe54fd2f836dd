"""The main job on real parts: through the front doors, under quota, to results and logs in S3."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
from sluice.core.lifecycle.record import State
from sluice.core.values.identity import workload_id

from local.settings import CLONE
from tests.e2e.stack import (
    BUCKET,
    NAMESPACE,
    SOURCE,
    Stack,
    a_job,
    a_workload,
    id_of,
    python,
    until,
)

pytestmark = pytest.mark.stack

WRITES = python("import pathlib; pathlib.Path('/out/answer.json').write_text('{\"answer\": 42}')")
SLEEPS = ("sleep", "300")


def test_a_submitted_job_runs_on_a_node_of_karpenter_and_leaves_its_result_in_s3(
    stack: Stack,
) -> None:
    queue = stack.queue("4")
    volume = {"name": "out", "mountPath": "/out", "s3": {"bucket": BUCKET, "prefix": f"{queue}/"}}

    (job,) = stack.submit(a_workload(queue, *WRITES, volumes=[volume]))
    (record,) = stack.await_phase("SUCCEEDED", job)

    written = stack.client("s3").get_object(Bucket=BUCKET, Key=f"{queue}/answer.json")
    assert json.loads(written["Body"].read()) == {"answer": 42}
    (node,) = record.result.nodes
    labels = stack.kubernetes.call("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
    assert labels["karpenter.sh/nodepool"] == "spot"
    stack.await_released(queue)


def test_what_does_not_fit_waits_without_a_pod_and_runs_when_quota_is_free(stack: Stack) -> None:
    queue = stack.queue("2")
    jobs = stack.submit(*(a_workload(queue, *SLEEPS) for _ in range(3)))
    until(
        "two of three run",
        lambda: sorted(map(stack.phase, jobs)) == ["PENDING", "RUNNING", "RUNNING"],
    )
    (waiting,) = (job for job in jobs if stack.phase(job) == "PENDING")
    running = [job for job in jobs if job != waiting]

    assert stack.jobs(waiting) == []
    assert stack.pods(waiting) == []
    why = stack.sluice("why", waiting)
    assert queue in why
    assert any(job in why for job in running), f"nobody is named who holds the quota: {why}"
    assert stack.ledgers.read(queue).usage[queue]["spot|cpu"] == 2000

    stack.sluice("cancel", "--yes", running[0])
    stack.await_phase("RUNNING", waiting)
    stack.sluice("cancel", "--yes", running[1], waiting)
    stack.await_phase("CANCELLED", *jobs)
    stack.await_released(queue)


def test_an_event_on_the_bus_is_a_submission(stack: Stack) -> None:
    queue = stack.queue("1")
    document = a_workload(queue, "true")
    entry = {
        "EventBusName": stack.published["bus"],
        "Source": SOURCE,
        "DetailType": "Sluice Workload Submission",
        "Detail": json.dumps(document),
    }

    answer = stack.client("events").put_events(Entries=[entry])

    assert answer["FailedEntryCount"] == 0
    stack.await_phase("SUCCEEDED", id_of(document))


def test_a_step_functions_task_waits_for_its_workload_and_hears_of_a_rejection(
    stack: Stack,
) -> None:
    queue, sfn = stack.queue("1"), stack.client("stepfunctions")
    trust = {"Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **trust}]}
    role = stack.client("iam").create_role(
        RoleName=queue, AssumeRolePolicyDocument=json.dumps(policy)
    )
    example = (CLONE / "examples/step-functions/train.asl.json").read_text()
    machine = sfn.create_state_machine(
        name=queue,
        definition=example.replace("${SubmissionsQueueUrl}", stack.published["queues/submissions"]),
        roleArn=role["Role"]["Arn"],
    )["stateMachineArn"]

    def ended(queue: str) -> dict[str, Any]:
        asked = json.dumps({"queue": queue})
        arn = sfn.start_execution(stateMachineArn=machine, input=asked)["executionArn"]
        until(
            f"the execution for queue {queue} has ended",
            lambda: sfn.describe_execution(executionArn=arn)["status"] != "RUNNING",
        )
        found: dict[str, Any] = sfn.describe_execution(executionArn=arn)
        return found

    good, bad = ended(queue), ended("nobody")

    assert good["status"] == "SUCCEEDED"
    output = json.loads(good["output"])
    assert (output["name"], output["phase"]) == ("train", "SUCCEEDED")
    assert [code for pod in output["exitCodes"].values() for code in pod.values()] == [0]
    assert "(kept apart)" in stack.sluice("get", output["id"], "-o", "yaml")
    assert (bad["status"], bad["error"]) == ("FAILED", "MISCONFIGURATION:UnknownQueue")
    assert "nobody does not exist" in bad["cause"]
    kept = stack.client("s3").list_objects_v2(Bucket=stack.published["bucket"], Prefix="tokens/")
    assert kept["KeyCount"] == 0


def test_an_admission_check_is_answered_by_an_event(stack: Stack) -> None:
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "approval"},
        "spec": {"controllerName": "sluice.dev/callback"},
    }
    stack.apply(check)
    queue = stack.queue("1", admissionChecksStrategy={"admissionChecks": [{"name": "approval"}]})
    (job,) = stack.submit(a_workload(queue, "true"))
    stack.await_phase("ADMITTED", job)

    def say(token: str, message: str) -> None:
        said = {"token": token, "state": "Ready", "message": message}
        entry = {
            "EventBusName": stack.published["bus"],
            "Source": SOURCE,
            "DetailType": "Admission Check Answered",
            "Detail": json.dumps(said),
        }
        assert not stack.client("events").put_events(Entries=[entry])["FailedEntryCount"]

    say(f"{job}.7.approval", "of another question")
    until("the wrong answer shows", lambda: "was not taken" in stack.sluice("events", job))
    assert stack.jobs(job) == []

    say(f"{job}.0.approval", "granted")
    stack.await_phase("SUCCEEDED", job)

    assert "says Ready: granted" in stack.sluice("events", job)
    stack.await_released(queue)


def test_a_plain_job_with_the_label_of_kueue_runs(stack: Stack) -> None:
    queue = stack.queue("1")
    (job,) = stack.submit(a_job(queue, "true"))

    (record,) = stack.await_phase("SUCCEEDED", job)

    assert record.queue == f"{NAMESPACE}/{queue}"
    assert record.name == "plain"


def test_a_gang_starts_whole_or_not_at_all(stack: Stack) -> None:
    queue = stack.queue("4")
    (holder,) = stack.submit(a_workload(queue, *SLEEPS, cpu="1"))
    stack.await_phase("RUNNING", holder)
    (gang,) = stack.submit(a_workload(queue, *SLEEPS, cpu="1", parallelism=4, completions=4))
    stack.await_phase("PENDING", gang)
    until("a pass has refused the gang", lambda: "4" in stack.sluice("why", gang))
    assert stack.pods(gang) == []

    stack.sluice("cancel", "--yes", holder)
    stack.await_phase("RUNNING", gang)

    assert [pod["status"]["phase"] for pod in stack.pods(gang)] == ["Running"] * 4
    stack.sluice("cancel", "--yes", gang)
    stack.await_phase("CANCELLED", gang)
    stack.await_released(queue)


def test_a_failure_keeps_its_exit_code_and_its_log_when_the_pod_is_gone(stack: Stack) -> None:
    queue = stack.queue("1")
    says = python("import sys; print('out of cheese', flush=True); sys.exit(3)")
    (job,) = stack.submit(a_job(queue, *says, backoffLimit=0))
    (record,) = stack.await_phase("FAILED", job)
    (pod,) = stack.pods(job)
    until("its log is in the bucket", lambda: stack.logs.list(job))

    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/w-{job}-g0"
    stack.kubernetes.call("DELETE", f"{path}?propagationPolicy=Background")
    until("its pod is gone", lambda: not stack.pods(job))

    assert record.result.exit_codes == {pod["metadata"]["name"]: {"main": 3}}
    assert "exited with 3" in record.result.message
    assert "out of cheese" in stack.sluice("logs", job)
    stack.await_released(queue)


def test_a_pending_and_a_running_job_can_be_cancelled(stack: Stack) -> None:
    queue = stack.queue("1")
    (running,) = stack.submit(a_workload(queue, *SLEEPS))
    stack.await_phase("RUNNING", running)
    (pending,) = stack.submit(a_workload(queue, *SLEEPS))
    stack.await_phase("PENDING", pending)

    stack.sluice("cancel", "--yes", pending)
    stack.sluice("cancel", "--yes", running)

    never, _ = stack.await_phase("CANCELLED", pending, running)
    assert never.admitted_at == 0
    stack.await_released(queue)
    assert stack.pods(running) == []
    assert stack.jobs(running) == []


def test_bad_submissions_are_rejected_with_advice_and_leave_their_neighbours_alone(
    stack: Stack,
) -> None:
    queue = stack.queue("2")
    good = [a_workload(queue, "true") for _ in range(3)]
    host = a_job(queue, "true")
    host["spec"]["template"]["spec"]["volumes"] = [{"name": "h", "hostPath": {"path": "/"}}]
    bad = {
        "{": "JSON",
        json.dumps(a_workload(queue, "true", qeueu="x")): "spec.qeueu",
        json.dumps(a_workload(queue, "true", cpu="3")): "never have more than 2",
        json.dumps(a_workload("nobody", "true")): queue,
        json.dumps(host): "hostPath",
        json.dumps(a_workload(queue, "true", padding="x" * 1_047_000)): "spec.padding",
    }
    *small, large = bad
    mixed = [*small[:2], json.dumps(good[0]), *small[2:], json.dumps(good[1])]

    sent = dict(zip(mixed, stack.send(*mixed), strict=True))
    sent[large] = stack.send(large)[0]
    stack.send(json.dumps(good[2]))

    stack.await_phase("SUCCEEDED", *map(id_of, good))
    rejected = [
        workload_id(NAMESPACE, sent[body]) if body == "{" else id_of(json.loads(body))
        for body in bad
    ]
    for record, advice in zip(stack.await_phase("REJECTED", *rejected), bad.values(), strict=True):
        said = f"{record.errors} {record.reason.message}"
        assert advice in said
    stack.await_released(queue)


def test_a_document_of_almost_a_mebibyte_goes_through_the_bucket_and_runs(stack: Stack) -> None:
    queue = stack.queue("1")
    environment = {f"RANDOM_{number}": secrets.token_hex(450) for number in range(999)}
    (job,) = stack.submit(
        a_workload(queue, *python("import os; assert 'RANDOM_998' in os.environ"), env=environment)
    )

    (record,) = stack.await_phase("SUCCEEDED", job)

    assert record.state is State.FINISHED
    kept = stack.client("s3").list_objects_v2(Bucket=stack.published["bucket"], Prefix="manifests/")
    assert kept["KeyCount"] >= 1
