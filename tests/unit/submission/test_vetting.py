"""What plain manifests and native documents may hold, and how refusals read."""

import pytest
from sluice.core.intake.submission import Accepted
from sluice.core.lifecycle.options import Deadlines

from tests.unit.submission.builders import (
    a_container,
    a_job,
    a_job_set,
    a_pod,
    a_replicated_job,
    a_tenant,
    a_workload,
    accepted,
    errors,
    judged,
)

POD = "spec.template.spec"
MAIN = f"{POD}.containers[0]"


def test_the_minimal_kueue_manifest_is_accepted_unedited():
    job = a_job()
    del job["metadata"]["name"], job["metadata"]["labels"]
    job["metadata"] |= {
        "generateName": "train-",
        "labels": {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "low"},
    }
    job["spec"]["suspend"] = True

    found = accepted(job)

    assert found.queue == "team-blue/research"
    assert found.priority_class == "low"
    assert found.name == f"train-{found.id[:5]}"


def test_what_kubectl_exports_is_accepted():
    job = a_job(a_pod(schedulerName="default-scheduler", dnsPolicy="ClusterFirst"))
    job["status"] = {}
    job["metadata"] |= {
        "creationTimestamp": None,
        "uid": "1-2-3",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    job["spec"]["template"]["metadata"] = {"creationTimestamp": None}

    accepted(job)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeName", "ip-10-0-0-1"),
        ("schedulerName", "mine"),
        ("runtimeClassName", "gvisor"),
        ("priority", 1000),
        ("schedulingGates", [{"name": "x"}]),
        ("schedulingGroup", {"podGroupName": "x"}),
        ("workloadRef", {"name": "x"}),
        ("hostAliases", [{"ip": "127.0.0.1"}]),
        ("ephemeralContainers", [{"name": "debug"}]),
        ("resourceClaims", [{"name": "gpu"}]),
        ("imagePullSecrets", [{"name": "registry"}]),
        ("terminationGracePeriodSeconds", 91),
        ("restartPolicy", "Always"),
        ("os", {"name": "windows"}),
        ("containers", []),
    ],
)
def test_pod_fields_that_submitters_may_not_write(field, value):
    found = errors(a_job(a_pod(**{field: value})))

    assert any(path.startswith(f"{POD}.{field}") for path in found), found


def test_who_runs_beside_whom_is_refused_with_what_to_do_instead():
    found = errors(a_job(a_pod(affinity={"podAntiAffinity": {}})))

    assert "topologySpreadConstraints" in found[f"{POD}.affinity.podAntiAffinity"]


@pytest.mark.parametrize(
    "volume",
    [
        {"secret": {"secretName": "db"}},
        {"configMap": {"name": "settings"}},
        {"persistentVolumeClaim": {"claimName": "w-someone-elses"}},
        {"nfs": {"server": "x", "path": "/"}},
        {"csi": {"driver": "s3.csi.aws.com"}},
        {"projected": {"sources": [{"secret": {"name": "db"}}]}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "pv-1"}}}},
    ],
)
def test_volumes_that_reach_out_are_refused(volume):
    found = errors(a_job(a_pod(volumes=[{"name": "v"} | volume])))

    assert len(found) == 1


@pytest.mark.parametrize(
    "volume",
    [
        {"emptyDir": {"sizeLimit": "1Gi"}},
        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"secret": {"secretName": "blue-db"}},
        {"configMap": {"name": "settings"}},
    ],
)
def test_volumes_of_their_own_and_registered_ones_are_accepted(volume):
    tenant = a_tenant(secrets=("blue-*",), config_maps=("settings",))

    accepted(a_job(a_pod(volumes=[{"name": "v"} | volume])), tenant)


def test_environment_from_secrets_needs_a_grant():
    container = a_container(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}}],
        envFrom=[{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
    )

    assert set(errors(a_job(a_pod(containers=[container])))) == {
        f"{MAIN}.env[0].valueFrom.secretKeyRef",
        f"{MAIN}.envFrom[0].configMapRef",
        f"{MAIN}.envFrom[1].secretRef",
    }


@pytest.mark.parametrize(
    "key",
    [
        "sluice.dev/workload",
        "sluice.dev/managed",
        "kubernetes.io/hostname",
        "batch.kubernetes.io/x",
        "karpenter.sh/nodepool",
        "eks.amazonaws.com/role",
        "kueue.x-k8s.io/managed",
        "sidecar.istio.io/inject",
        "x" * 64,
        "two words",
        "a/b/c",
    ],
)
def test_reserved_and_invalid_labels_are_refused_at_every_level(key):
    job = a_job()
    job["metadata"]["labels"][key] = "x"
    job["spec"]["template"]["metadata"] = {"labels": {key: "x"}, "annotations": {key: "x"}}
    native = a_workload()
    native["metadata"]["labels"] = {key: "x"}

    assert set(errors(job)) == {
        f"metadata.labels[{key}]",
        f"spec.template.metadata.labels[{key}]",
        f"spec.template.metadata.annotations[{key}]",
    }
    assert set(errors(native)) == {f"metadata.labels[{key}]"}


def test_the_submitters_own_labels_are_accepted():
    job = a_job()
    job["metadata"]["labels"] |= {"team": "nlp", "app.kubernetes.io/name": "x", "acme.io/cost": "7"}

    accepted(job)


def test_finalizers_and_owners_are_refused():
    job = a_job()
    job["metadata"] |= {"finalizers": ["x/y"], "ownerReferences": [{"kind": "Node"}]}

    assert set(errors(job)) == {"metadata.finalizers", "metadata.ownerReferences"}


def test_unknown_fields_are_errors_with_a_suggestion_at_every_depth():
    job = a_job(a_pod(containers=[a_container(imagePullPolice="Always")]), paralelism=2)
    native = a_workload(resorces={"cpu": 1}, checkpoint={"mode": "none", "intervall": "5m"})

    assert "did you mean imagePullPolicy?" in errors(job)[f"{MAIN}.imagePullPolice"]
    assert "did you mean parallelism?" in errors(job)["spec.paralelism"]
    assert "did you mean resources?" in errors(native)["spec.resorces"]
    assert "did you mean interval?" in errors(native)["spec.checkpoint.intervall"]


def test_refused_fields_of_any_shape_hide_no_other_flaw():
    odd = {"ephemeralContainers": True, "nodeName": 7, "volumes": [{"name": "v", "nfs": 1}]}
    found = errors(a_job(a_pod(**odd, hostPID=True)))

    assert set(found) == {
        f"{POD}.ephemeralContainers",
        f"{POD}.nodeName",
        f"{POD}.volumes[0].nfs",
        f"{POD}.hostPID",
    }


def test_all_errors_are_collected():
    document = a_workload(
        image="@@", priorty="high", resources={"cpu": "a lot"}, deadlines={"maxRuntime": "soon"}
    )
    document["metadata"] |= {"idempotencyKey": "A B", "namespace": "team-red"}

    assert set(errors(document)) == {
        "metadata.idempotencyKey",
        "metadata.namespace",
        "spec.deadlines.maxRuntime",
        "spec.image",
        "spec.priorty",
        "spec.resources.cpu",
    }


def test_shapes_are_checked_before_anything_else_looks():
    job = a_job(a_pod(containers=[{"name": 7, "image": ["x"], "args": "x", "env": {"A": 1}}]))

    assert set(errors(job)) == {f"{MAIN}.{field}" for field in ("name", "image", "args", "env")}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (a_job() | {"kind": "CronJob"}, "kind"),
        (a_job() | {"apiVersion": "batch/v2"}, "apiVersion"),
        (a_job() | {"metadata": None}, "metadata"),
        (a_job() | {"metadata": {"name": "x"}}, "metadata.labels[sluice.dev/queue-name]"),
        (a_job() | {"spec": None}, "spec"),
        (a_job() | {"spec": {"template": {}}}, "spec.template.spec"),
        (a_job_set(), "spec.replicatedJobs"),
        (a_job_set({"name": "a"}), "spec.replicatedJobs[0].template.spec"),
        (a_job_set(*[a_replicated_job("a")] * 2), "spec.replicatedJobs[1].name"),
        (a_workload() | {"spec": None}, "spec"),
        (a_workload(job=a_job()), "spec.image"),
        (a_workload(queue=None), "spec.queue"),
        (a_workload(env=[{"name": "A"}]), "spec.env"),
        (a_workload(array="1-5"), "spec.array"),
        (a_workload(array="0-5", parallelism=2), "spec.parallelism"),
        (a_workload(resources={}), "spec.resources"),
    ],
)
def test_incomplete_and_contradictory_documents(document, field):
    assert field in errors(document)


def test_a_tenants_caps_hold_for_the_whole_workload():
    tenant = a_tenant(max_pods=9, max_gpus=7)

    assert errors(a_workload(parallelism=10, completions=10), tenant) == {
        "spec": "asks for 10 pods; tenant blue may ask for 9 at once"
    }
    assert "GPUs" in errors(a_workload(resources={"gpu": 8}), tenant)["spec"]


def test_limits_can_be_required():
    found = errors(a_job(), a_tenant(require_limits=True))

    assert set(found) == {f"{MAIN}.resources.limits.cpu", f"{MAIN}.resources.limits.memory"}


def test_a_deadline_cannot_exceed_the_tenants():
    tenant = a_tenant(max_runtime_seconds=3600)

    assert "spec.activeDeadlineSeconds" in errors(a_job(activeDeadlineSeconds=3601), tenant)
    assert accepted(a_job(), tenant).options.deadlines == Deadlines(max_runtime_seconds=3600)


def test_a_pod_that_asks_for_nothing_is_refused_since_it_would_evade_quota():
    found = errors(a_job(a_pod(containers=[a_container(resources={})])))

    assert set(found) == {f"{MAIN}.resources.requests"}


def test_the_same_document_is_the_same_workload_and_another_body_has_another_digest():
    one, again, other = judged(a_workload()), judged(a_workload()), judged(a_workload(args=["x"]))

    assert isinstance(one, Accepted)
    assert (one.id, one.digest) == (again.id, again.digest)
    assert one.id == other.id
    assert one.digest != other.digest
