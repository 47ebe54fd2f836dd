"""The rights and the admission policies that ClusterAccess publishes, on a real API server."""

import copy
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Stack
from kubernetes import client, config
from sluice.core.intake.rendering import Generation, PodPlacement, render
from sluice.core.lifecycle.options import Options, S3Volume

from infra.cluster_manifest import cluster_manifest
from local.apply import ApiServer, apply_all
from local.settings import Layout

pytestmark = [pytest.mark.stack, pytest.mark.slow]

NAMESPACE = "team-green"
LABELS = {"sluice.dev/workload": "aaaaaaaaaaaaa", "sluice.dev/generation": "1"}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "w-aaaaaaaaaaaaa-g1", "labels": LABELS},
    "spec": {
        "suspend": True,
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "x"}],
            },
        },
    },
}
JOBSET_CONTROLLERS = (
    "system:serviceaccount:jobset-system:jobset-controller-manager",  # by its manifests
    "system:serviceaccount:jobset-system:jobset-controller",  # by Helm, release `jobset`
)
OF_A_JOBSET = [
    {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": "u"}
]
Change = Callable[[dict[str, Any]], object]


POOLS = "/apis/karpenter.sh/v1/nodepools"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BARE_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bare", "labels": LABELS},
    "spec": JOB["spec"]["template"]["spec"],
}
CORDON = {"spec": {"unschedulable": True}}


@pytest.fixture(scope="module")
def api(local_stack: Stack, foreign_pool: str, nodes: tuple[str, str]):
    apply_all(ApiServer(Layout(local_stack.state).kubeconfig), cluster_manifest([NAMESPACE]))
    with config.new_client_from_config(local_stack.endpoints.kubeconfig) as found:
        await_policies(found, foreign_pool, nodes[1])
        yield found


@pytest.fixture(scope="module")
def foreign_pool(local_stack: Stack):
    """A NodePool that nobody has handed over to Sluice."""
    (pool, *_) = local_stack.api.call("GET", POOLS)["items"]
    metadata = {"name": "foreign"}
    given = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata}
    local_stack.apply(given | {"spec": pool["spec"]})
    yield "foreign"
    local_stack.api.call("DELETE", f"{POOLS}/foreign")


@pytest.fixture(scope="module")
def nodes(local_stack: Stack):
    """One that Karpenter could have bought, and one of somebody else."""
    for name, labels in (("bought", {"karpenter.sh/nodepool": "spot"}), ("own", {})):
        local_stack.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"kind:///{name}"},
            }
        )
    yield "bought", "own"
    for name in ("bought", "own"):
        local_stack.api.call("DELETE", f"/api/v1/nodes/{name}")


def create(
    api: client.ApiClient,
    document: dict[str, Any],
    *,
    group: str = "sluice:act",
    user: str = "somebody",
    path: str = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    dry_run: bool = True,
) -> str:
    """What the API server has against the object; empty if nothing."""
    return ask(api, "POST", path, document, "application/json", (user, group), dry_run=dry_run)


def change(
    api: client.ApiClient,
    path: str,
    patch: dict[str, Any],
    *,
    group: str = "sluice:act",
    user: str = "somebody",
) -> str:
    """What it has against a change; nothing is stored."""
    return ask(api, "PATCH", path, patch, "application/merge-patch+json", (user, group))


def ask(
    api: client.ApiClient,
    method: str,
    path: str,
    document: dict[str, Any],
    content: str,
    caller: tuple[str, str],
    *,
    dry_run: bool = True,
) -> str:
    headers = {
        "Impersonate-User": caller[0],
        "Impersonate-Group": caller[1],
        "Content-Type": content,
    }
    try:
        api.call_api(
            path,
            method,
            {},
            [("fieldManager", "sluice"), *([("dryRun", "All")] if dry_run else [])],
            headers,
            document,
            auth_settings=["BearerToken"],
            response_type="object",
        )
    except client.ApiException as error:
        return json.loads(error.body)["message"]
    return ""


def await_policies(api: client.ApiClient, foreign_pool: str, own_node: str) -> None:
    """Each takes a moment of its own from the write to every request's check."""
    masters, node = "system:masters", f"/api/v1/nodes/{own_node}"
    awaited: dict[str, Callable[[], str]] = {
        "Sluice alone says": lambda: create(api, JOB, group=masters),
        "pods of this namespace": lambda: create(api, BARE_POD, path=PODS, group=masters),
        "Sluice changes NodePools with": lambda: limited(api, foreign_pool),
        "Sluice makes and removes volumes": lambda: volume(api, lambda v: v.pop("labels", None)),
        "Sluice cordons the machines": lambda: change(api, node, CORDON, group="sluice:interrupt"),
    }
    for words, asked in awaited.items():
        for _ in range(100):
            if words in asked():
                break
            time.sleep(0.2)
        else:
            pytest.fail(f"the policy that says {words!r} does not take effect")


def volume(api: client.ApiClient, edit: Change, *, group: str = "sluice:act") -> str:
    """What the API server has against a PersistentVolume of Sluice with this change."""
    name = "w-aaaaaaaaaaaaa-data"
    run = Generation(
        id="aaaaaaaaaaaaa", name="n", namespace=NAMESPACE, queue=f"{NAMESPACE}/q", generation=1,
        placements={"main": PodPlacement(1)},
        options=Options(volumes=(S3Volume("data", "/data", "bucket", "x/"),)),
    )  # fmt: skip
    (found, *_) = render(JOB, run)
    assert found["metadata"]["name"] == name
    edit(found)
    edit(found["metadata"])
    return create(api, found, group=group, path="/api/v1/persistentvolumes")


def changed(edit: Change) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    edit(job)
    return job


def of_pod(**fields: Any) -> Change:
    return lambda job: job["spec"]["template"]["spec"].update(fields)


def of_container(**fields: Any) -> Change:
    return lambda job: job["spec"]["template"]["spec"]["containers"][0].update(fields)


def as_child(job: dict[str, Any]) -> None:
    job["metadata"] |= {"name": "w-x-main-0", "ownerReferences": OF_A_JOBSET}


def test_a_job_of_sluice_is_welcome(api: client.ApiClient) -> None:
    assert create(api, JOB) == ""


def test_nobody_else_makes_jobs_of_tenants_not_even_an_administrator(
    api: client.ApiClient,
) -> None:
    assert "Sluice alone says" in create(api, JOB, group="system:masters")


@pytest.mark.parametrize(
    ("edit", "answer"),
    [
        (lambda job: job["spec"]["template"].pop("metadata"), "pods must carry"),
        (lambda job: job["metadata"].update(name="w-bbbbbbbbbbbbb-g1"), "named after them"),
        (lambda job: job["metadata"].update(ownerReferences=OF_A_JOBSET), "ownerReferences"),
        (lambda job: job["metadata"].update(finalizers=["a/b"]), "finalizers"),
        (of_pod(nodeName="n"), "nodeName"),
        (of_pod(schedulerName="mine"), "schedulerName"),
        (of_pod(hostNetwork=True), "host namespaces"),
        (of_pod(hostPID=True), "host namespaces"),
        (of_pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}]), "hostAliases"),
        (of_pod(automountServiceAccountToken=True), "automountServiceAccountToken"),
        (of_pod(volumes=[{"name": "a", "hostPath": {"path": "/"}}]), "hostPath"),
        (
            of_pod(
                volumes=[
                    {
                        "name": "a",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            ),
            "projected service account tokens",
        ),
        (of_container(env=[{"name": "LD_PRELOAD", "value": "x"}]), "preload"),
        (of_container(env=[{"name": "AWS_ENDPOINT_URL_S3", "value": "x"}]), "redirect"),
    ],
)
def test_what_vetting_refuses_the_api_server_refuses_too(
    api: client.ApiClient, edit: Change, answer: str
) -> None:
    assert answer in create(api, changed(edit))


@pytest.mark.parametrize("controller", JOBSET_CONTROLLERS)
def test_children_of_a_jobset_are_let_through_and_vetted(
    api: client.ApiClient, controller: str
) -> None:
    def placed(job: dict[str, Any]) -> None:
        as_child(job)
        of_pod(nodeName="n")(job)

    group = "system:masters"
    assert create(api, changed(as_child), group=group, user=controller) == ""
    assert "nodeName" in create(api, changed(placed), group=group, user=controller)
    assert "Sluice alone" in create(api, changed(as_child), group=group)
    elsewhere = controller.replace("jobset-system", NAMESPACE)
    assert "Sluice alone" in create(api, changed(as_child), group=group, user=elsewhere)


@pytest.fixture
def stored(api: client.ApiClient) -> Iterator[str]:
    """The path of the suspended Job, as Sluice has made it."""
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    assert create(api, JOB, dry_run=False) == ""
    yield f"{path}/{JOB['metadata']['name']}"
    at_once = [("propagationPolicy", "Background")]
    api.call_api(
        f"{path}/{JOB['metadata']['name']}", "DELETE", {}, at_once, auth_settings=["BearerToken"]
    )


START = {"spec": {"suspend": False}}
RELABEL = {"metadata": {"labels": {"sluice.dev/workload": "bbbbbbbbbbbbb"}}}
OWN = {"metadata": {"finalizers": ["a/b"]}}
STRIP = {"spec": {"template": {"metadata": {"labels": {"sluice.dev/workload": None}}}}}


def test_sluice_starts_its_jobs_and_nobody_else_does(api: client.ApiClient, stored: str) -> None:
    assert change(api, stored, START) == ""
    assert "Sluice alone starts" in change(api, stored, START, group="system:masters")


@pytest.mark.parametrize(
    ("patch", "answer"),
    [(RELABEL, "named after them"), (OWN, "finalizers"), (STRIP, "pods must carry")],
    ids=["labels", "finalizers", "labels-of-pods"],
)
def test_what_sluice_changes_of_a_job_is_vetted_too(
    api: client.ApiClient, stored: str, patch: dict[str, Any], answer: str
) -> None:
    assert answer in change(api, stored, patch)


def test_controllers_of_kubernetes_carry_on_with_jobs_but_make_none(
    api: client.ApiClient, stored: str
) -> None:
    user, group = "system:kube-controller-manager", "system:masters"

    assert change(api, stored, START, user=user, group=group) == ""
    assert "Sluice alone says" in create(api, JOB, user=user, group=group)


def test_the_job_controller_makes_pods_of_sluices_jobs_alone(api: client.ApiClient) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    metadata = {"name": "made", "labels": LABELS, "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    pod["spec"] = JOB["spec"]["template"]["spec"]
    controller = {"user": "system:kube-controller-manager", "group": "system:masters"}

    assert create(api, pod, path=PODS, **controller) == ""
    assert "Sluice's Jobs alone" in create(api, pod, path=PODS, group="system:masters")
    pod["metadata"] = metadata | {"labels": {"a": "b"}}
    assert "Sluice's Jobs alone" in create(api, pod, path=PODS, **controller)


def test_a_bare_pod_is_refused(api: client.ApiClient) -> None:
    answer = create(api, BARE_POD, group="system:masters", path=PODS)

    assert "Sluice's Jobs alone" in answer


def test_act_has_rights_in_tenant_namespaces_only(api: client.ApiClient) -> None:
    elsewhere = "/apis/batch/v1/namespaces/default/jobs"

    assert 'cannot create resource "jobs"' in create(api, JOB, path=elsewhere)


def of_volume(**fields: Any) -> Change:
    return lambda found: found.get("spec", {}).update(fields) if "spec" in found else None


def test_act_makes_volumes_of_its_workloads(api: client.ApiClient) -> None:
    assert volume(api, lambda _: None) == ""


@pytest.mark.parametrize(
    "edit",
    [
        of_volume(csi=None, hostPath={"path": "/"}),
        of_volume(csi={"driver": "ebs.csi.aws.com", "volumeHandle": "w-aaaaaaaaaaaaa-data"}),
        of_volume(csi={"driver": "s3.csi.aws.com", "volumeHandle": "of-another"}),
        of_volume(csi=None, nfs={"server": "10.0.0.1", "path": "/"}),
        of_volume(mountOptions=["endpoint-url https://evil.example"]),
        of_volume(claimRef={"namespace": NAMESPACE, "name": "of-another"}),
        lambda found: found.pop("labels", None),
        lambda found: found.update(name="pvc-of-another") if "name" in found else None,
    ],
)
def test_s3_act_makes_no_other_volume(api: client.ApiClient, edit: Change) -> None:
    """Finding S3: a hostPath is root on a node, and any handle somebody else's disk."""
    assert "of Sluice" in volume(api, edit) or "of its workloads" in volume(api, edit)


def test_s3_act_removes_no_volume_of_others(api: client.ApiClient) -> None:
    foreign = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "foreign"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                 "hostPath": {"path": "/tmp"}},
    }  # fmt: skip
    path, masters = "/api/v1/persistentvolumes", ("somebody", "system:masters")
    ask(api, "POST", path, foreign, "application/json", masters, dry_run=False)
    try:
        refused = ask(api, "DELETE", f"{path}/foreign", {}, "application/json", ("x", "sluice:act"))
        assert "volumes of its workloads only" in refused
    finally:
        ask(api, "DELETE", f"{path}/foreign", {}, "application/json", masters, dry_run=False)


def test_observe_cannot_create_jobs(api: client.ApiClient) -> None:
    assert 'cannot create resource "jobs"' in create(api, JOB, group="sluice:observe")


def applied(api: client.ApiClient, pool: str, *, group: str = "sluice:act", **changes: Any) -> str:
    """What is said against a server-side apply, as act does it."""
    named = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool}}
    content = "application/apply-patch+yaml"
    return ask(api, "PATCH", f"{POOLS}/{pool}", named | changes, content, ("somebody", group))


def limited(api: client.ApiClient, pool: str) -> str:
    return applied(api, pool, spec={"limits": {"cpu": "0"}})


def test_act_turns_the_knobs_of_pools_that_it_was_given(api: client.ApiClient) -> None:
    frozen = {"budgets": [{"nodes": "0"}]}

    assert applied(api, "spot", spec={"limits": {"cpu": "64"}, "weight": 7}) == ""
    assert applied(api, "spot", spec={"disruption": frozen}) == ""
    assert applied(api, "spot") == "", "and gives them back"


@pytest.mark.parametrize(
    "spec",
    [
        {"limits": {"memory": "1Gi"}},
        {"disruption": {"consolidateAfter": "1s"}},
        {"template": {"spec": {"expireAfter": "1h"}}},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
    ],
)
def test_act_turns_nothing_else_of_a_pool(api: client.ApiClient, spec: dict[str, Any]) -> None:
    refused = change(api, f"{POOLS}/spot", {"spec": spec})

    assert "limits.cpu, weight and disruption.budgets of a NodePool only" in refused


def test_act_takes_over_no_pool(api: client.ApiClient, foreign_pool: str) -> None:
    marked = {"metadata": {"labels": {"sluice.dev/managed": "true"}}}

    taken = change(api, f"{POOLS}/{foreign_pool}", marked)
    let_go = change(api, f"{POOLS}/spot", {"metadata": {"labels": None}})

    assert "Sluice changes NodePools with the label" in limited(api, foreign_pool)
    assert "Sluice changes NodePools with the label" in taken
    assert "no metadata of NodePools" in let_go


def test_administrators_keep_their_pools(api: client.ApiClient, foreign_pool: str) -> None:
    changed = {"limits": {"memory": "1Gi"}}

    assert applied(api, foreign_pool, group="system:masters", spec=changed) == ""


def test_interrupt_cordons_machines_of_karpenter_and_does_nothing_else_to_nodes(
    api: client.ApiClient, nodes: tuple[str, str]
) -> None:
    taint = {"spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoExecute"}]}}
    label = {"metadata": {"labels": {"a": "b"}}, **CORDON}

    def said(node: str, patch: dict[str, Any]) -> str:
        return change(api, f"/api/v1/nodes/{node}", patch, group="sluice:interrupt")

    bought, own = nodes
    assert said(bought, CORDON) == ""
    assert "NodePools only" in said(own, CORDON)
    assert "changes nothing else" in said(bought, taint)
    assert "changes nothing else" in said(bought, label)
    assert "changes nothing else" in said(bought, {"spec": {"unschedulable": False}})
