"""What Sluice itself acts on, from native documents and from annotations."""

from typing import Any

import pytest

from tests.records import options_of
from tests.unit.submission.builders import a_job, a_tenant, a_verbatim, a_workload, accepted, errors

FULL = {
    "priority": "high",
    "preemptible": True,
    "capacity": "on-demand",
    "placement": [
        {"flavor": "h100-spot", "clusters": ["use1"]},
        {"flavor": "od", "afterPending": "45m"},
    ],
    "deadlines": {"maxPending": "6h", "maxRuntime": "24h"},
    "minRuntime": "90s",
    "pendingPolicy": [{"reason": "CAPACITY:*", "after": "2h", "action": "Notify"}],
    "dependsOn": [{"name": "preprocess-7", "condition": "Succeeded"}],
    "checkpoint": {
        "mode": "signal",
        "grace": "90s",
        "interval": "15m",
        "retain": 3,
        "uri": "s3://ckpt/llm-ft-7/",
    },
    "recovery": {
        "onInterruption": {"maxRecoveries": 20, "backoff": "30s"},
        "onFailure": {
            "retries": 2,
            "rules": [{"exitCodes": [33], "action": "Retry", "countsAgainstBudget": False}],
        },
    },
    "budget": {"maxCostUSD": 400.5},
    "volumes": [
        {
            "name": "data",
            "mountPath": "/data",
            "readOnly": True,
            "s3": {"bucket": "blue-data", "prefix": "in", "region": "eu-west-1"},
        }
    ],
}


def test_the_fuller_native_document_is_read_completely():
    found = accepted(a_workload(**FULL))

    assert found.priority_class == "high"
    assert found.options == options_of(
        {
            "preemptible": True,
            "capacity": "on-demand",
            "placement": [
                {"flavor": "h100-spot", "clusters": ["use1"]},
                {"flavor": "od", "after_pending_seconds": 2700},
            ],
            "deadlines": {"max_pending_seconds": 21_600, "max_runtime_seconds": 86_400},
            "min_runtime_ms": 90_000,
            "pending_policy": [{"reason": "CAPACITY:*", "after_seconds": 7200, "action": "Notify"}],
            "depends_on": [{"name": "preprocess-7", "condition": "Succeeded"}],
            "checkpoint": {
                "mode": "application",
                "signal": "SIGUSR1",
                "grace_seconds": 90,
                "interval_seconds": 900,
                "retain": 3,
                "uri": "s3://ckpt/llm-ft-7/",
            },
            "max_recoveries": 20,
            "recovery": {
                "backoff_seconds": 30,
                "retries": 2,
                "rules": [{"exit_codes": [33], "action": "Retry", "counts_against_budget": False}],
            },
            "max_cost_cents": 40_050,
            "volumes": [
                {
                    "name": "data",
                    "bucket": "blue-data",
                    "prefix": "in/",
                    "region": "eu-west-1",
                    "mount_path": "/data",
                    "read_only": True,
                }
            ],
            "security": {"level": "restricted"},
        }
    )


@pytest.mark.parametrize(
    ("annotations", "options"),
    [
        ({"sluice.dev/capacity": "spot"}, {"capacity": "spot"}),
        ({"sluice.dev/max-recoveries": "3"}, {"max_recoveries": 3}),
        ({"sluice.dev/max-runtime": "2h"}, {"deadlines": {"max_runtime_seconds": 7200}}),
        ({"sluice.dev/checkpoint": "kubelet"}, {"checkpoint": {"mode": "kubelet"}}),
        (
            {"sluice.dev/checkpoint": "s3://ckpt/x"},
            {"checkpoint": {"mode": "application", "uri": "s3://ckpt/x"}},
        ),
    ],
)
def test_annotations_of_a_plain_job(annotations, options):
    job = a_job()
    job["metadata"]["annotations"] = annotations

    assert accepted(job).options == options_of(options | {"security": {"level": "restricted"}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sluice.dev/capacity", "free"),
        ("sluice.dev/max-recoveries", "many"),
        ("sluice.dev/max-recoveries", "-1"),
        ("sluice.dev/max-runtime", "soon"),
        ("sluice.dev/checkpoint", "magic"),
        ("sluice.dev/checkpoint", "s3://x y"),
        ("sluice.dev/idempotency-key", "A B"),
    ],
)
def test_bad_annotations_are_reported_at_their_place(name, value):
    job = a_job()
    job["metadata"]["annotations"] = {name: value}

    assert set(errors(job)) == {f"metadata.annotations[{name}]"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"checkpoint": {"mode": "magic"}}, "spec.checkpoint.mode"),
        ({"checkpoint": {"mode": "kubelet", "connections": "keep"}}, "spec.checkpoint.connections"),
        ({"checkpoint": {"connections": "close"}}, "spec.checkpoint.connections"),
        ({"checkpoint": {"signal": "SIGKILL"}}, "spec.checkpoint.signal"),
        ({"checkpoint": {"mode": "none", "interval": "5m"}}, "spec.checkpoint.interval"),
        ({"checkpoint": {"mode": "none", "uri": "s3://a/b"}}, "spec.checkpoint.uri"),
        ({"checkpoint": {"grace": "91s"}}, "spec.checkpoint.grace"),
        ({"checkpoint": {"uri": "https://x"}}, "spec.checkpoint.uri"),
        (
            {"recovery": {"onInterruption": {"maxRecoveries": -1}}},
            "spec.recovery.onInterruption.maxRecoveries",
        ),
        (
            {"recovery": {"onInterruption": {"backoff": "2h"}}},
            "spec.recovery.onInterruption.backoff",
        ),
        (
            {"recovery": {"onFailure": {"rules": [{"exitCodes": [256]}]}}},
            "spec.recovery.onFailure.rules[0].exitCodes[0]",
        ),
        ({"deadlines": {"maxRuntime": "3 days"}}, "spec.deadlines.maxRuntime"),
        ({"deadlines": {"finishWithin": "9h"}}, "spec.deadlines.finishWithin"),
        ({"placement": [{"clusters": []}]}, "spec.placement[0].flavor"),
        ({"pendingPolicy": [{"reason": "slow"}]}, "spec.pendingPolicy[0].reason"),
        ({"pendingPolicy": [{"reason": "QUOTA:Slow"}]}, "spec.pendingPolicy[0].reason"),
        ({"pendingPolicy": [{"reason": "HELD:User"}]}, "spec.pendingPolicy[0].reason"),
        (
            {"pendingPolicy": [{"reason": "QUOTA:*", "action": "Escalate"}]},
            "spec.pendingPolicy[0].priority",
        ),
        (
            {"pendingPolicy": [{"reason": "QUOTA:*", "priority": "urgent"}]},
            "spec.pendingPolicy[0].priority",
        ),
        (
            {"pendingPolicy": [{"reason": "QUOTA:*", "action": "AllowOnDemand"}]},
            "spec.pendingPolicy[0].action",
        ),
        ({"dependsOn": [{"name": "a", "id": "b"}]}, "spec.dependsOn[0].name"),
        ({"dependsOn": [{"id": "not-an-id"}]}, "spec.dependsOn[0].id"),
        ({"budget": {"maxCostUSD": "-4"}}, "spec.budget.maxCostUSD"),
        ({"completion": {"taskToken": "x" * 2049}}, "spec.completion.taskToken"),
        ({"completion": {"taskToken": ""}}, "spec.completion.taskToken"),
        ({"completion": {"taskToken": 7}}, "spec.completion.taskToken"),
        ({"completion": {}}, "spec.completion.taskToken"),
        ({"completion": {"token": "x"}}, "spec.completion.token"),
        ({"capacity": "cheap"}, "spec.capacity"),
        ({"preemptible": "yes"}, "spec.preemptible"),
        ({"placement": [{"flavor": "a"}] * 101}, "spec.placement"),
    ],
)
def test_bad_options_are_reported_at_their_place(spec, field):
    assert field in errors(a_workload(**spec))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "Data"}, "name"),
        ({"name": "x" * 31}, "name"),
        ({"mountPath": "data"}, "mountPath"),
        ({"mountPath": "/data/../etc"}, "mountPath"),
        ({"mountPath": "/"}, "mountPath"),
        ({"s3": {"bucket": "B"}}, "s3.bucket"),
        ({"s3": {"bucket": "blue-data", "prefix": "../red"}}, "s3.prefix"),
        ({"s3": {"bucket": "blue-data", "prefix": "a b"}}, "s3.prefix"),
        ({"s3": {"bucket": "blue-data", "prefix": "a,allow-root"}}, "s3.prefix"),
        ({"s3": {"bucket": "blue-data", "region": "mars"}}, "s3.region"),
        ({"s3": {"bucket": "red-data", "prefix": "x/"}}, "s3.bucket"),
        ({"s3": None}, "s3"),
    ],
)
def test_bad_volumes_are_reported_at_their_place(change, field):
    volume = {"name": "data", "mountPath": "/data", "s3": {"bucket": "blue-data"}}

    found = errors(a_workload(volumes=[volume | change]), a_tenant(buckets=("blue-*/*",)))

    assert f"spec.volumes[0].{field}" in found


def test_a_volume_may_not_hide_one_of_the_verbatim_job():
    pod = a_job()["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    document = a_verbatim(
        a_job(pod),
        volumes=[{"name": "data", "mountPath": "/data", "s3": {"bucket": "blue-data"}}],
    )

    assert set(errors(document)) == {"spec.volumes[0].name", "spec.volumes[0].mountPath"}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"parallelism": 2}, "spec.parallelism"),
        ({"array": "0-3"}, "spec.parallelism"),
        ({"checkpoint": {"mode": "cedana", "signal": "SIGUSR1"}}, "spec.checkpoint.signal"),
    ],
)
def test_cedana_is_for_jobs_of_one_pod(asked: dict[str, Any], field: str) -> None:
    accepted(a_workload(checkpoint={"mode": "cedana"}))

    assert list(errors(a_workload(**{"checkpoint": {"mode": "cedana"}, **asked}))) == [field]


@pytest.mark.parametrize("by", ["id", "name"])
def test_who_waits_for_itself_is_refused_at_submission(by):
    document = a_workload()
    itself = accepted(document).id if by == "id" else document["metadata"]["name"]
    document["spec"]["dependsOn"] = [{by: itself}]

    assert "is this workload itself" in errors(document)[f"spec.dependsOn[0].{by}"]
