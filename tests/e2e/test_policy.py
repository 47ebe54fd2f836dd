"""Who runs, who yields, who waits: the policies that the README promises, through users' doors."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.audit import Audit, audit
from tests.e2e.stack import (
    BUCKET,
    TENANTS,
    Document,
    Stack,
    a_workload,
    id_of,
    python,
    until,
)

pytestmark = pytest.mark.stack

KUEUE, SLUICE = "kueue.x-k8s.io/v1beta2", "sluice.dev/v1"
SLEEPS = ("sleep", "300")
RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
# Ends with SIGTERM, and then as a program that has saved its step; a later run goes on from there.
SAVES = python("""
import pathlib, signal, sys, time

step = pathlib.Path("/kept/step")
if step.exists():
    print("goes on at", step.read_text(), flush=True)
    sys.exit()


def save(*_):
    step.write_text("7")
    sys.exit(143)


signal.signal(signal.SIGTERM, save)
pathlib.Path("/kept/started").write_text("now")
while True:
    time.sleep(0.1)
""")


def an_object(kind: str, name: str, *, version: str = KUEUE, **spec: Any) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def a_name(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def a_class(stack: Stack, value: int) -> str:
    """A new WorkloadPriorityClass."""
    name = a_name("class")
    metadata = {"name": name}
    stack.apply(
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": metadata, "value": value}
    )
    return name


def why(stack: Stack, workload: str) -> str:
    return stack.sluice("why", workload)


def told(stack: Stack, workload: str, what: str) -> list[Document]:
    return [line for line in stack.timeline(workload) if line["what"].startswith(what)]


def emptied(stack: Stack, root: str) -> Audit:
    """The audit of a root whose work has ended: all was given back once; passes replay alike."""
    stack.await_released(root)
    found = audit(stack, root)
    assert sorted(found.admitted) == sorted(found.released)
    assert set(found.usage.values()) == {0}
    assert "same plan" in stack.sluice("replay", "--root", root)
    return found


def test_a_victim_saves_itself_first_gives_its_quota_back_once_and_goes_on_later(
    stack: Stack,
) -> None:
    queue = stack.queue("1", preemption={"withinClusterQueue": "LowerPriority"})
    high = a_class(stack, 100)
    kept = {"name": "kept", "mountPath": "/kept", "s3": {"bucket": BUCKET, "prefix": f"{queue}/"}}
    (victim,) = stack.submit(
        a_workload(queue, *SAVES, volumes=[kept], checkpoint={"mode": "application"})
    )
    s3 = stack.client("s3")
    until(
        "the victim works",
        lambda: s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{queue}/started")["KeyCount"],
    )

    (preemptor,) = stack.submit(a_workload(queue, "true", priority=high))
    stack.await_phase("SUCCEEDED", preemptor, victim)

    assert "goes on at 7" in stack.sluice("logs", victim)
    (line,) = told(stack, victim, "Preempted")
    assert line["detail"]["by"] == preemptor
    found = emptied(stack, queue)
    assert found.admitted == [(victim, 0), (preemptor, 0), (victim, 1)]
    assert found.preempted == [(victim, 0)]
    assert found.most[queue, "spot|cpu"] == 1000


def test_a_lender_takes_back_what_it_lent_and_lends_it_again(stack: Stack) -> None:
    cohort = a_name("cohort")
    lender = stack.queue("2", cohortName=cohort, preemption=RECLAIM)
    borrower = stack.queue("0", cohortName=cohort)
    borrowed = stack.submit(*(a_workload(borrower, *SLEEPS) for _ in range(2)))
    stack.await_phase("RUNNING", *borrowed)

    (own,) = stack.submit(a_workload(lender, *SLEEPS))
    stack.await_phase("RUNNING", own)

    (victim,) = (each for each in borrowed if stack.phase(each) == "PENDING")
    (other,) = (each for each in borrowed if each != victim)
    assert f"It waits for quota of {borrower}" in why(stack, victim)
    (line,) = told(stack, victim, "Preempted")
    assert line["detail"]["by"] == own
    assert "InCohortReclamation" in line["message"]

    stack.sluice("cancel", "--yes", own)
    stack.await_phase("RUNNING", victim, other)
    stack.sluice("cancel", "--yes", victim, other)
    stack.await_phase("CANCELLED", own, victim, other)
    found = emptied(stack, cohort)
    assert found.preempted == [(victim, 0)]
    assert found.together["spot|cpu"] == 2000


def test_a_scheduling_policy_shares_a_cohort_by_weight(stack: Stack) -> None:
    cohort = a_name("cohort")
    quota = [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "1000Gi"}]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": "spot", "resources": quota}],
    }
    shares = an_object(
        "SchedulingPolicy", cohort, version=SLUICE, rootCohort=cohort, fairSharing={}
    )
    stack.apply(an_object("Cohort", cohort, resourceGroups=[group]), shares)
    first, second = (
        stack.queue("0", cohortName=cohort, preemption=RECLAIM, fairSharing={"weight": weight})
        for weight in ("1", "3")
    )
    early = stack.submit(*(a_workload(first, *SLEEPS) for _ in range(4)))
    stack.await_phase("RUNNING", *early)

    late = stack.submit(*(a_workload(second, *SLEEPS) for _ in range(4)))

    def running() -> tuple[int, int]:
        rows = {
            row["name"]: row for row in json.loads(stack.sluice("queues", "-o", "json"))["items"]
        }
        return rows[first]["running"], rows[second]["running"]

    until(lambda: f"one and three run: {running()}", lambda: running() == (1, 3))
    waiting = [each for each in late if stack.phase(each) == "PENDING"]
    assert len(waiting) == 1
    stack.sluice("cancel", "--yes", *early, *late)
    stack.await_phase("CANCELLED", *early, *late)
    found = emptied(stack, cohort)
    assert {name for name, _ in found.preempted} < set(early)
    assert len(found.preempted) == 3
    assert found.together["spot|cpu"] == 4000


@pytest.fixture
def priced(stack: Stack) -> Iterator[None]:
    """A core of the flavor spot costs a dollar an hour, for a while."""
    flavor = TENANTS[0]
    price = {"sluice.dev/usd-per-cpu-hour": "1"}
    stack.apply(flavor | {"metadata": flavor["metadata"] | {"annotations": price}})
    yield
    stack.apply(flavor)


@pytest.mark.usefixtures("priced")
def test_a_budget_holds_work_until_what_ended_has_cost_less_than_was_set_aside(
    stack: Stack,
) -> None:
    queue = stack.queue("4")
    limits = {"clusterQueue": queue, "limitUSD": "1.5", "window": "24h", "assumedRuntime": "1h"}
    stack.apply(an_object("Budget", queue, version=SLUICE, **limits))
    (spender,) = stack.submit(a_workload(queue, *SLEEPS))
    stack.await_phase("RUNNING", spender)
    (waiting,) = stack.submit(a_workload(queue, "true"))
    until("it has a reason", lambda: "QUOTA:BudgetExhausted" in why(stack, waiting))

    assert queue in why(stack, waiting)
    assert stack.jobs(waiting) == []

    stack.sluice("cancel", "--yes", spender)
    stack.await_phase("SUCCEEDED", waiting)
    emptied(stack, queue)


@pytest.fixture
def questions(stack: Stack) -> Iterator[str]:
    """Address of a queue to which a rule sends what admission checks are asked."""
    events, sqs, name = stack.client("events"), stack.client("sqs"), a_name("questions")
    bus, url = stack.published["bus"], sqs.create_queue(QueueName=name)["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    pattern = {"source": ["sluice"], "detail-type": ["Admission Check Requested"]}
    events.put_rule(Name=name, EventBusName=bus, EventPattern=json.dumps(pattern))
    target = {"Id": name, "Arn": asked["Attributes"]["QueueArn"]}
    events.put_targets(Rule=name, EventBusName=bus, Targets=[target])
    yield url
    events.remove_targets(Rule=name, EventBusName=bus, Ids=[name])
    events.delete_rule(Name=name, EventBusName=bus)
    sqs.delete_queue(QueueUrl=url)


def test_an_admission_check_is_asked_by_an_event_and_its_answer_decides(
    stack: Stack, questions: str
) -> None:
    check = a_name("approval")
    stack.apply(an_object("AdmissionCheck", check, controllerName="sluice.dev/callback"))
    queue = stack.queue("2", admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    wanted, unwanted = stack.submit(*(a_workload(queue, "true") for _ in range(2)))
    tokens: dict[str, str] = {}

    def asked() -> bool:
        answer = stack.client("sqs").receive_message(QueueUrl=questions, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            data = json.loads(message["Body"])["detail"]["data"]
            assert data["check"] == check
            tokens[data["id"]] = data["token"]
        return tokens.keys() == {wanted, unwanted}

    until("both are asked about", asked)
    assert check in why(stack, wanted)
    assert stack.jobs(wanted) == []
    assert stack.ledgers.read(queue).usage[queue]["spot|cpu"] == 2000

    stack.sluice("check", wanted, check, "ready", "--token", tokens[wanted])
    no = ("rejected", "--reason", "too dear", "--token", tokens[unwanted])
    stack.sluice("check", unwanted, check, *no)

    stack.await_phase("SUCCEEDED", wanted)
    until("the rejected one is held", lambda: stack.get(unwanted).held)
    assert "too dear" in why(stack, unwanted)
    stack.sluice("cancel", "--yes", unwanted)
    assert sorted(emptied(stack, queue).admitted) == sorted([(wanted, 0), (unwanted, 0)])


def test_an_array_runs_as_many_as_it_allows_and_its_dependent_waits_for_all(stack: Stack) -> None:
    queue = stack.queue("4")
    array = a_workload(queue, "sleep", "1", name="array", array="0-3%2")
    dependent = a_workload(queue, "true", name="after", dependsOn=[{"name": "array"}])
    stack.send(json.dumps({"apiVersion": "v1", "kind": "List", "items": [dependent, array]}))
    first, then = id_of(array), id_of(dependent)
    stack.await_phase("RUNNING", first)

    assert f"array ({first})" in why(stack, then)
    assert stack.ledgers.read(queue).usage[queue]["spot|cpu"] == 2000
    (job,) = stack.jobs(first)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 4)

    before, after = stack.await_phase("SUCCEEDED", first, then)
    assert len(before.result.exit_codes) == 4
    assert after.admitted_at >= before.finished_at
    assert emptied(stack, queue).most[queue, "spot|cpu"] == 2000


def test_patience_and_time_of_a_workload_end_where_it_says(stack: Stack) -> None:
    queue = stack.queue("2")
    policy = [{"reason": "QUOTA:*", "after": "1s", "action": "Cancel"}]
    (holder,) = stack.submit(a_workload(queue, *SLEEPS))
    stack.await_phase("RUNNING", holder)
    impatient, late = stack.submit(
        a_workload(queue, "true", cpu="2", pendingPolicy=policy),
        a_workload(queue, "true", cpu="2", deadlines={"maxPending": "1s"}),
    )
    stack.await_phase("PENDING", impatient, late)
    time.sleep(1)

    (slow,) = stack.submit(a_workload(queue, *SLEEPS, deadlines={"maxRuntime": "2s"}))

    ended = stack.await_phase("CANCELLED", impatient, late)
    assert [each.reason.code for each in ended] == [
        "CANCELLED:PendingPolicy",
        "MISCONFIGURATION:DeadlinePassed",
    ]
    assert "Cancel after 1 s of waiting" in why(stack, impatient)
    assert "maxPending" in why(stack, late)
    (record,) = stack.await_phase("FAILED", slow)
    assert "2 s of deadlines.maxRuntime" in why(stack, slow), record.result
    assert stack.phase(holder) == "RUNNING"
    stack.sluice("cancel", "--yes", holder)
    stack.await_phase("CANCELLED", holder)
    emptied(stack, queue)
