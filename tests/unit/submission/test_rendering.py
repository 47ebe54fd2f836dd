"""What reaches the cluster: the submitter's object, with what Sluice writes around it."""

import json

import pytest
from sluice.core.config.tenants import PodSecurity
from sluice.core.intake import pod_security
from sluice.core.intake.rendering import PodPlacement
from sluice.core.values.identity import job_name

from tests.unit.submission.builders import (
    a_container,
    a_job,
    a_job_set,
    a_pod,
    a_replicated_job,
    a_tenant,
    a_verbatim,
    a_workload,
    accepted,
    rendered,
    rendered_pod,
)

VOLUME = {
    "name": "out",
    "mountPath": "/out",
    "s3": {"bucket": "blue-data", "prefix": "out/", "region": "eu-west-1"},
}
LABELS = {
    "sluice.dev/generation": "1",
    "sluice.dev/queue": "research",
    "sluice.dev/managed": "true",
}


def test_the_job_is_suspended_and_named_by_workload_and_generation():
    workload = accepted(a_job())

    (job,) = rendered(workload, generation=3)

    assert job["metadata"]["name"] == job_name(workload.id, 3)
    assert job["metadata"]["namespace"] == "team-blue"
    assert job["spec"]["suspend"] is True
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600


def test_job_and_pods_carry_the_labels_of_the_contract_and_the_submitters_own():
    document = a_job()
    document["metadata"]["labels"]["team"] = "nlp"
    document["spec"]["template"]["metadata"] = {"labels": {"stage": "train"}}
    workload = accepted(document)

    (job,) = rendered(workload)

    ours = LABELS | {"sluice.dev/workload": workload.id}
    assert job["metadata"]["labels"] == ours | {"team": "nlp"}
    pods = job["spec"]["template"]["metadata"]
    assert pods["labels"] == ours | {"sluice.dev/pod-set": "main", "stage": "train"}
    assert pods["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_labels_that_would_make_a_kueue_in_the_cluster_take_the_job_are_left_out():
    document = a_job()
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}

    (job,) = rendered(accepted(document))

    assert "kueue" not in json.dumps(job)


def test_a_native_workload_passes_its_labels_on():
    document = a_workload()
    document["metadata"]["labels"] = {"team": "nlp"}

    (job,) = rendered(accepted(document))

    assert job["metadata"]["labels"]["team"] == "nlp"


def test_the_submitters_fields_are_otherwise_untouched():
    pod = a_pod(
        containers=[a_container(command=["train"], workingDir="/w")],
        volumes=[{"name": "scratch", "emptyDir": {}}],
        dnsPolicy="Default",
    )
    document = a_job(pod, backoffLimit=2, completions=3, parallelism=3, completionMode="Indexed")

    (job,) = rendered(accepted(document))

    spec = job["spec"]
    assert {key: spec[key] for key in document["spec"] if key != "template"} == {
        key: value for key, value in document["spec"].items() if key != "template"
    }
    made = spec["template"]["spec"]
    assert made["volumes"] == pod["volumes"]
    assert made["dnsPolicy"] == "Default"
    container = made["containers"][0]
    for key, value in pod["containers"][0].items():
        assert container[key] == value


def test_flavors_decide_where_pods_run():
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    placement = PodPlacement(0, {"karpenter.sh/nodepool": "h100"}, (toleration,))
    terms = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}]

    pod = rendered_pod(accepted(a_job()), placement=placement, node_selector_terms=terms)

    assert pod["nodeSelector"] == {"karpenter.sh/nodepool": "h100"}
    assert pod["tolerations"] == [toleration]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": terms}


def test_disruptions_do_not_count_as_failures():
    own = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}

    (job,) = rendered(accepted(a_job(podFailurePolicy={"rules": [own]})))

    first, second = job["spec"]["podFailurePolicy"]["rules"]
    assert first["action"] == "Ignore"
    assert first["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert second == own
    assert job["spec"]["podReplacementPolicy"] == "Failed"


def test_what_a_failure_means_follows_from_its_exit_code_and_the_first_rule_counts():
    rules = [
        {"exitCodes": [33, 0], "action": "Retry", "countsAgainstBudget": False},
        {"exitCodes": [2, 33], "action": "Fail"},
        {"exitCodes": [5], "action": "Retry"},
        {"exitCodes": [1], "action": "Fail"},
    ]
    recovery = {"onFailure": {"retries": 4, "rules": rules}}

    (job,) = rendered(accepted(a_workload(recovery=recovery)))

    disruptions, *own = job["spec"]["podFailurePolicy"]["rules"]
    assert "onPodConditions" in disruptions
    assert [(rule["action"], rule["onExitCodes"]["values"]) for rule in own] == [
        ("Ignore", [33]),
        ("FailJob", [1, 2]),
        ("Count", [5]),
    ]
    assert {rule["onExitCodes"]["operator"] for rule in own} == {"In"}
    assert job["spec"]["backoffLimit"] == 4


def test_pods_that_restart_in_place_get_no_failure_policy_since_kubernetes_has_none_for_them():
    (job,) = rendered(accepted(a_job(a_pod(restartPolicy="OnFailure"))))

    assert "podFailurePolicy" not in job["spec"]


@pytest.mark.parametrize(("asked", "given"), [(None, 30), (10, 10), (90, 90)])
def test_grace_fits_into_the_notice_of_a_spot_interruption(asked, given):
    fields = {} if asked is None else {"terminationGracePeriodSeconds": asked}

    assert rendered_pod(accepted(a_job(a_pod(**fields))))["terminationGracePeriodSeconds"] == given


def test_no_token_is_mounted_and_the_tenants_account_is_set():
    pod = rendered_pod(accepted(a_job(), a_tenant(service_account="blue-jobs")))

    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "blue-jobs"


def test_partial_admission_lowers_parallelism_and_keeps_completions():
    document = a_workload(parallelism=10, completions=10, minParallelism=2)

    (job,) = rendered(accepted(document), counts={"main": 4})

    assert job["spec"]["parallelism"] == 4
    assert job["spec"]["completions"] == 10


@pytest.mark.parametrize("level", list(PodSecurity))
def test_rendered_pods_satisfy_the_standard_of_their_namespace(level):
    document = a_job(a_pod(initContainers=[a_container(name="init")]))

    pod = rendered_pod(accepted(document, a_tenant(pod_security=level)))

    assert pod_security.violations(pod, level, "pod") == []


def test_a_user_to_run_as_is_set_where_nobody_says():
    workload = accepted(a_workload(volumes=[VOLUME]), a_tenant(run_as_user=1000))

    volume, _, job = rendered(workload)

    assert job["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 1000
    # Mountpoint shows its files to root alone unless told otherwise.
    assert {"allow-other", "uid=1000", "gid=1000"} <= set(volume["spec"]["mountOptions"])


def test_a_volume_is_a_static_mountpoint_volume_with_a_claim_bound_to_it():
    workload = accepted(a_workload(volumes=[VOLUME]))
    name = f"w-{workload.id}-out"

    volume, claim, job = rendered(workload)

    assert volume["kind"] == "PersistentVolume"
    assert volume["metadata"]["name"] == name
    assert volume["spec"] == {
        "capacity": {"storage": "1Ti"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"namespace": "team-blue", "name": name},
        "mountOptions": ["allow-delete", "allow-overwrite", "region eu-west-1", "prefix out/"],
        "csi": {
            "driver": "s3.csi.aws.com",
            "volumeHandle": name,
            "volumeAttributes": {
                "bucketName": "blue-data",
                "authenticationSource": "pod",
                "stsRegion": "eu-west-1",
            },
        },
    }
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": {"storage": "1Ti"}},
    }
    assert (claim["metadata"]["namespace"], claim["metadata"]["name"]) == ("team-blue", name)
    pod = job["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "out", "persistentVolumeClaim": {"claimName": name}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "out", "mountPath": "/out"}]


def test_a_volume_for_reading_allows_nothing_else():
    volume, claim, job = rendered(accepted(a_workload(volumes=[VOLUME | {"readOnly": True}])))

    assert volume["spec"]["mountOptions"] == ["read-only", "region eu-west-1", "prefix out/"]
    assert volume["spec"]["accessModes"] == claim["spec"]["accessModes"] == ["ReadOnlyMany"]
    assert job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] is True


def test_containers_know_who_they_are_and_where_checkpoints_go():
    workload = accepted(
        a_workload(env={"STEPS": 5}, checkpoint={"mode": "signal", "uri": "s3://ckpt/x/"})
    )

    pod = rendered_pod(workload, generation=2, restore_from="s3://ckpt/x/7")

    variables = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    assert variables == {
        "SLUICE_WORKLOAD_ID": workload.id,
        "SLUICE_WORKLOAD_NAME": "embed",
        "SLUICE_GENERATION": "2",
        "SLUICE_QUEUE": "team-blue/research",
        "SLUICE_CHECKPOINT_MODE": "application",
        "SLUICE_CHECKPOINT_SIGNAL": "SIGUSR1",
        "SLUICE_CHECKPOINT_URI": "s3://ckpt/x/",
        "SLUICE_RESTORE_FROM": "s3://ckpt/x/7",
        "STEPS": "5",
    }


def test_the_checkpoint_to_restore_is_annotated_on_job_and_pods():
    (job,) = rendered(accepted(a_job()), restore_from="s3://ckpt/x/7")

    for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert metadata["annotations"]["sluice.dev/restore-from"] == "s3://ckpt/x/7"


def test_a_deadline_bounds_the_job_itself():
    (job,) = rendered(accepted(a_workload(deadlines={"maxRuntime": "2h"})))

    assert job["spec"]["activeDeadlineSeconds"] == 7200


def test_devices_get_the_limit_that_kubernetes_wants():
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": 2}}

    pod = rendered_pod(accepted(a_job(a_pod(containers=[a_container(resources=resources)]))))

    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}


def test_every_job_of_a_jobset_is_placed_by_its_own_flavor():
    workload = accepted(
        a_job_set(a_replicated_job("driver"), a_replicated_job("workers", 2, suspend=True))
    )
    placements = {"driver": PodPlacement(1, {"f": "od"}), "workers": PodPlacement(2, {"f": "spot"})}

    (job_set,) = rendered(workload, placements=placements)

    assert job_set["spec"]["suspend"] is True
    chosen = [
        (entry["name"], entry["template"]["spec"]["template"]["spec"]["nodeSelector"]["f"])
        for entry in job_set["spec"]["replicatedJobs"]
    ]
    assert chosen == [("driver", "od"), ("workers", "spot")]
    for entry in job_set["spec"]["replicatedJobs"]:
        job = entry["template"]
        assert "suspend" not in job["spec"]
        assert job["metadata"]["labels"]["sluice.dev/workload"] == workload.id
        assert job["spec"]["template"]["metadata"]["labels"]["sluice.dev/pod-set"] == entry["name"]


def test_rendering_changes_neither_its_input_nor_its_answer():
    workload = accepted(a_workload(volumes=[VOLUME]))

    assert rendered(workload) == rendered(workload)


def test_a_run_from_cedana_has_a_pod_that_waits_for_another_one():
    workload = accepted(a_workload(checkpoint={"mode": "cedana"}))

    (job,) = rendered(workload, restore_from="cedana://batch-1/an-action")

    template = job["spec"]["template"]
    assert template["spec"]["schedulingGates"] == [{"name": "sluice.dev/restore"}]
    assert template["metadata"]["finalizers"] == ["sluice.dev/restore"]
    assert "sluice.dev/restore-from" not in template["metadata"]["annotations"]
    assert "finalizers" not in job["metadata"]
    (first,) = rendered(workload)
    assert "schedulingGates" not in first["spec"]["template"]["spec"]
    assert "finalizers" not in first["spec"]["template"]["metadata"]


def test_cedana_wants_its_own_runtime_for_gpus_only():
    with_gpu = {"resources": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 1}}
    plain = accepted(a_workload(checkpoint={"mode": "cedana"}))
    on_gpus = accepted(a_workload(checkpoint={"mode": "cedana"}, **with_gpu))

    assert "runtimeClassName" not in rendered_pod(plain)
    assert rendered_pod(on_gpus)["runtimeClassName"] == "cedana"
    assert "runtimeClassName" not in rendered_pod(accepted(a_workload(**with_gpu)))


@pytest.mark.parametrize(
    ("checkpoint", "annotated"),
    [
        ({"mode": "kubelet"}, "close"),
        ({"mode": "kubelet", "connections": "refuse"}, "refuse"),
        ({"mode": "application"}, None),
        ({"mode": "cedana"}, None),
    ],
)
def test_a_dump_closes_open_connections_unless_it_is_to_be_refused(checkpoint, annotated):
    (job,) = rendered(accepted(a_workload(checkpoint=checkpoint)))

    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert annotations.get("sluice.dev/checkpoint-connections") == annotated


def test_a_job_set_in_order_is_a_gang_for_each_stage_and_any_other_is_one() -> None:
    stages = (a_replicated_job("leader"), a_replicated_job("workers", replicas=3))
    any_order, in_order = a_job_set(*stages), a_job_set(*stages)
    in_order["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}

    assert gangs_of(any_order) == [("w-{id}-g1-gang", "4"), ("w-{id}-g1-gang", "4")]
    assert gangs_of(in_order) == [None, ("w-{id}-g1-gang-workers", "3")]


def gangs_of(job_set: dict[str, object]) -> list[tuple[str, str] | None]:
    """ConfigMap and size of each stage, as its pods and their containers name it."""
    workload = accepted(job_set)
    *_, made = rendered(workload)
    found: list[tuple[str, str] | None] = []
    for job in made["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        annotations = template["metadata"]["annotations"]
        name = annotations.get("sluice.dev/gang")
        env = template["spec"]["containers"][0].get("env", [])
        read = [e["valueFrom"]["configMapKeyRef"]["name"] for e in env if "valueFrom" in e]
        assert read == ([name] if name else [])
        size = annotations.get("sluice.dev/gang-size")
        found.append((name.replace(workload.id, "{id}"), size) if name else None)
    return found


@pytest.mark.parametrize("own", [None, {"type": "Localhost", "localhostProfile": "mine.json"}])
def test_pods_that_are_dumped_cannot_use_io_uring_unless_they_insist(own):
    pod = a_pod(**({"securityContext": {"seccompProfile": own}} if own else {}))
    document = a_verbatim(a_job(pod), checkpoint={"mode": "kubelet"})

    made = rendered_pod(accepted(document, a_tenant(pod_security=PodSecurity.BASELINE)))

    assert made["securityContext"]["seccompProfile"] == (own or {"type": "RuntimeDefault"})


def test_pods_that_are_not_dumped_keep_what_they_leave_unsaid():
    document = a_verbatim(a_job(a_pod()), checkpoint={"mode": "none"})

    made = rendered_pod(accepted(document, a_tenant(pod_security=PodSecurity.BASELINE)))

    assert "seccompProfile" not in made.get("securityContext", {})
