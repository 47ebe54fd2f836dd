"""What users of a tenant may do with Jobs in its namespace, on a real API server."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Stack
from kubernetes import client, config

from infra.cluster_manifest import cluster_manifest
from local.apply import ApiServer, apply_all
from local.settings import Layout

pytestmark = [pytest.mark.stack, pytest.mark.slow]

NAMESPACE = "team-door"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ALICE = ("alice", "tenant:door")
ACT = ("act", "sluice:act")
MERGE = "application/merge-patch+json"
QUEUE = "kueue.x-k8s.io/queue-name"
ROLE = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "tenant", "namespace": NAMESPACE},
        "rules": [
            {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "tenant:door"}
        ],
    },
]


@pytest.fixture(scope="module")
def api(local_stack: Stack) -> Iterator[client.ApiClient]:
    server = ApiServer(Layout(local_stack.state).kubeconfig)
    labels = {"sluice.dev/managed": "true"}
    apply_all(
        server,
        [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": NAMESPACE, "labels": labels},
            },
            *cluster_manifest([NAMESPACE]),
            *ROLE,
        ],
    )
    with config.new_client_from_config(local_stack.endpoints.kubeconfig) as found:
        await_policies(found)
        yield found


def await_policies(api: client.ApiClient) -> None:
    """They are in force a moment after they are stored."""
    deadline = time.monotonic() + 30
    while not (
        "finalizers" in create(api, a_job(finalizers=["a/b"]), dry_run=True)[0]
        and create(api, a_job(), dry_run=True)[1].get("spec", {}).get("suspend")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def call(
    api: client.ApiClient,
    method: str,
    path: str,
    body: dict[str, Any],
    caller: tuple[str, str] = ALICE,
    *,
    content: str = MERGE,
    dry_run: bool = False,
) -> tuple[str, dict[str, Any]]:
    """What the API server has against it, or what came of it."""
    headers = {
        "Impersonate-User": caller[0],
        "Impersonate-Group": caller[1],
        "Content-Type": content,
    }
    try:
        data, _, _ = api.call_api(
            path,
            method,
            {},
            [("dryRun", "All")] if dry_run else [],
            headers,
            body=body,
            response_type="object",
            auth_settings=["BearerToken"],
            _return_http_data_only=False,
        )
    except client.ApiException as error:
        return str(json.loads(error.body)["message"]), {}
    return "", data


def create(
    api: client.ApiClient,
    job: dict[str, Any],
    caller: tuple[str, str] = ALICE,
    *,
    dry_run: bool = False,
) -> tuple[str, dict[str, Any]]:
    return call(api, "POST", JOBS, job, caller, content="application/json", dry_run=dry_run)


def change(
    api: client.ApiClient, path: str, patch: dict[str, Any], caller: tuple[str, str] = ALICE
) -> str:
    return call(api, "PATCH", path, patch, caller)[0]


def a_job(*, queue: str = "research", pod: Any = None, **metadata: Any) -> dict[str, Any]:
    """As a tool writes it."""
    container = {"name": "main", "image": "x"}
    named = {"name": f"door-{uuid.uuid4().hex[:8]}", "labels": {QUEUE: queue} if queue else {}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": named | metadata,
        "spec": {"template": template},
    }


@pytest.fixture
def queued(api: client.ApiClient) -> Iterator[str]:
    """The path of a Job of a user that waits for its quota."""
    answer, made = create(api, a_job())
    assert answer == ""
    path = f"{JOBS}/{made['metadata']['name']}"
    yield path
    call(api, "DELETE", path, {"propagationPolicy": "Background"}, content="application/json")


@pytest.fixture
def started(api: client.ApiClient, queued: str) -> str:
    """The same once Sluice has started it."""
    labels = {"sluice.dev/workload": "aaaaaaaaaaaaa", "sluice.dev/generation": "0"}
    prepared = {
        "metadata": {"labels": labels},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"karpenter.sh/nodepool": "none"}},
            }
        },
    }
    assert change(api, queued, prepared, ACT) == ""
    start = {"metadata": {"annotations": {"sluice.dev/started": "0"}}, "spec": {"suspend": False}}
    assert change(api, queued, start, ACT) == ""
    return queued


def test_a_manifest_as_it_is_comes_in_suspended(api: client.ApiClient) -> None:
    answer, made = create(api, a_job(), dry_run=True)

    assert answer == ""
    assert made["spec"]["suspend"] is True
    assert made["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_without_a_queue_it_goes_to_the_default_one(api: client.ApiClient) -> None:
    _, made = create(api, a_job(queue=""), dry_run=True)

    assert made["metadata"]["labels"][QUEUE] == "default"


def test_the_door_notes_who_created_a_job_and_nobody_else_can_be_named(
    api: client.ApiClient,
) -> None:
    forged = a_job(annotations={"sluice.dev/user": "bob"})

    _, made = create(api, forged, dry_run=True)

    assert made["metadata"]["annotations"]["sluice.dev/user"] == "alice"


@pytest.mark.parametrize(
    ("job", "answer"),
    [
        (a_job(labels={QUEUE: "q", "sluice.dev/workload": "aaaaaaaaaaaaa"}), "alone says"),
        (a_job(labels={QUEUE: "q", "sluice.dev/generation": "9"}), "alone says"),
        (a_job(annotations={"sluice.dev/stopped": "9"}), "alone says"),
        (a_job(finalizers=["a/b"]), "finalizers"),
        (a_job(pod={"nodeName": "n"}), "nodeName"),
        (a_job(pod={"hostNetwork": True}), "host namespaces"),
        (a_job(pod={"automountServiceAccountToken": True}), "automountServiceAccountToken"),
        (a_job(pod={"priorityClassName": "system-node-critical"}), "priorityClassName"),
    ],
)
def test_what_a_user_may_not_create(
    api: client.ApiClient, job: dict[str, Any], answer: str
) -> None:
    assert answer in create(api, job, dry_run=True)[0]


EDITS: dict[str, dict[str, Any]] = {
    "un-suspend": {"spec": {"suspend": False}},
    "more pods": {"spec": {"parallelism": 5}},
    "other nodes": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    "another queue": {"metadata": {"labels": {QUEUE: "other"}}},
    "no queue": {"metadata": {"labels": {QUEUE: None}}},
    "another workload": {"metadata": {"labels": {"sluice.dev/workload": "bbbbbbbbbbbbb"}}},
    "a mark of Sluice": {"metadata": {"annotations": {"sluice.dev/stopped": "7"}}},
    "another user": {"metadata": {"annotations": {"sluice.dev/user": "bob"}}},
    "no user": {"metadata": {"annotations": {"sluice.dev/user": None}}},
    "a finalizer": {"metadata": {"finalizers": ["a/b"]}},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_a_user_may_not_change_while_it_waits(
    api: client.ApiClient, queued: str, edit: dict[str, Any]
) -> None:
    assert "denied request" in change(api, queued, edit)


@pytest.mark.parametrize(
    "edit",
    [{"spec": {"suspend": True}}, {"spec": {"parallelism": 5}}, EDITS["another workload"]],
    ids=["suspend", "more pods", "another workload"],
)
def test_what_a_user_may_not_change_while_it_runs(
    api: client.ApiClient, started: str, edit: dict[str, Any]
) -> None:
    assert "denied request" in change(api, started, edit)


def test_a_user_may_note_things_of_its_own(api: client.ApiClient, queued: str) -> None:
    own = {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "mine"}}}

    assert change(api, queued, own) == ""


def test_an_administrator_does_not_start_it_either(api: client.ApiClient, queued: str) -> None:
    answer = change(api, queued, EDITS["un-suspend"], ("root", "system:masters"))

    assert "Sluice alone starts" in answer


def test_its_status_is_its_controllers_word(api: client.ApiClient, started: str) -> None:
    done = {"status": {"succeeded": 1}}

    assert "denied request" in change(api, f"{started}/status", done)
    assert "denied request" in change(api, f"{started}/status", done, ACT)


def test_a_user_deletes_it(api: client.ApiClient) -> None:
    _, made = create(api, a_job())

    answer, _ = call(
        api,
        "DELETE",
        f"{JOBS}/{made['metadata']['name']}",
        {"propagationPolicy": "Background"},
        content="application/json",
    )

    assert answer == ""


def pod_of(api: client.ApiClient, job: str) -> str:
    """The path of a pod that the Job controller has made; somewhere its node says it runs."""
    name = job.rpartition("/")[2]
    deadline = time.monotonic() + 30
    while not (found := pods(api, name)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return f"{PODS}/{found[0]['metadata']['name']}"


def pods(api: client.ApiClient, job: str) -> list[dict[str, Any]]:
    listed = call(api, "GET", PODS, {}, content="application/json")[1]["items"]
    mine = "batch.kubernetes.io/job-name"
    return [pod for pod in listed if pod["metadata"]["labels"].get(mine) == job]


POD_EDITS: dict[str, dict[str, Any]] = {
    "not counted": {"metadata": {"labels": {"sluice.dev/workload": None}}},
    "of another": {"metadata": {"labels": {"sluice.dev/workload": "bbbbbbbbbbbbb"}}},
    "an order": {"metadata": {"annotations": {"sluice.dev/order": "x"}}},
    "no finalizer": {"metadata": {"finalizers": None}},
    "no owner": {"metadata": {"ownerReferences": None}},
    "released by its Job": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": None}}},
    "a longer deadline": {"spec": {"activeDeadlineSeconds": 600}},
}


@pytest.mark.parametrize("edit", POD_EDITS.values(), ids=POD_EDITS)
def test_what_a_user_may_not_change_of_its_pods(
    api: client.ApiClient, started: str, edit: dict[str, Any]
) -> None:
    assert "denied request" in change(api, pod_of(api, started), edit)


def test_a_user_deletes_a_pod_but_makes_nobody_forget_one_that_may_run(
    api: client.ApiClient, started: str
) -> None:
    pod = pod_of(api, started)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.rpartition("/")[2]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
    }
    root = ("root", "system:masters")
    assert call(api, "POST", f"{pod}/binding", binding, root, content="application/json")[0] == ""
    json_body = "application/json"

    forced, _ = call(api, "DELETE", pod, {"gracePeriodSeconds": 0}, content=json_body)
    gentle, _ = call(api, "DELETE", pod, {"gracePeriodSeconds": 1}, content=json_body)

    assert "without --force" in forced
    assert gentle == ""
