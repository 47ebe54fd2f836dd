"""What manifests say about nodes and priority takes part as in Kueue, or is told with its field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sluice.core.lifecycle.record import State, Workload
from sluice.core.values.identity import workload_id
from sluice.ports import CatalogEdit
from sluice.usecases.admitting.submit import Message

from tests.unit.usecases.plane import NAMESPACE, SENDER, TENANT, Plane
from tests.unit.usecases.world import CLUSTER, ROOT, queue

POD = "spec.template.spec"
KUEUE = "kueue.x-k8s.io/v1beta2"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATES = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def flavor(name: str, *taints: dict[str, str], **labels: str) -> dict[str, Any]:
    spec = {"nodeLabels": labels, "nodeTaints": list(taints)}
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def a_plane(**tenant: Any) -> Plane:
    """ClusterQueue `a` has the flavors spot, a100 (tainted) and plain, in this order."""
    plane = Plane()
    cluster_queue = queue("a", 2)
    (group,) = cluster_queue["spec"]["resourceGroups"]
    quotas = group["flavors"][0]["resources"]
    names = ("spot", "a100", "plain")
    group["flavors"] = [{"name": name, "resources": quotas} for name in names]
    high = {
        "apiVersion": KUEUE,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": 7,
    }
    put = (
        ("ResourceFlavor", "spot", flavor("spot", accelerator="none")),
        ("ResourceFlavor", "a100", flavor("a100", TAINT, accelerator="a100")),
        ("ResourceFlavor", "plain", flavor("plain")),
        ("ClusterQueue", "a", cluster_queue),
        ("WorkloadPriorityClass", "high", high),
        ("Tenant", "blue", TENANT | {"spec": TENANT["spec"] | tenant}),
    )
    assert plane.catalog.edit(CatalogEdit(1, put, roots=(ROOT,)))
    return plane


def submitted(plane: Plane, *, labelled: bool = True, **pod: Any) -> Workload:
    container = {"name": "main", "image": "docker.io/library/x:1"}
    spec = {
        "restartPolicy": "Never",
        "containers": [container | {"resources": {"requests": {"cpu": "1"}}}],
        **pod,
    }
    labels = {"kueue.x-k8s.io/queue-name": "research"} if labelled else {}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": labels},
        "spec": {"template": {"spec": spec}},
    }
    plane.submit()([Message("m1", SENDER, plane.clock.now(), json.dumps(job))])
    return plane.record(workload_id(NAMESPACE, "m1"))


def started(plane: Plane, record: Workload) -> dict[str, Any]:
    """The PodSpec of its Job."""
    plane.admit()(ROOT)
    plane.act()(CLUSTER, [record.id])
    job = plane.job(record.id)
    assert job is not None, plane.record(record.id)
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def test_a_selector_chooses_the_flavor_and_what_is_granted_besides_is_passed_on() -> None:
    plane = a_plane()
    zone = {"topology.kubernetes.io/zone": "z-1"}

    record = submitted(plane, nodeSelector={"accelerator": "a100", **zone}, tolerations=[TOLERATES])

    pod = started(plane, record)
    assert pod["nodeSelector"] == {"accelerator": "a100", **zone}
    assert TOLERATES in pod["tolerations"]
    held = plane.record(record.id).reservation
    assert held is not None
    assert held.flavors == {"a100"}


def test_a_flavor_without_the_label_is_none_that_was_asked_for() -> None:
    plane = a_plane()

    record = submitted(plane, nodeSelector={"accelerator": "a100"})  # whose taint it does not bear

    plane.admit()(ROOT)
    assert plane.record(record.id).state is State.PENDING


def test_required_affinity_takes_part_and_stays() -> None:
    plane = a_plane()
    need = {"key": "accelerator", "operator": "DoesNotExist"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [need]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    pod = started(plane, submitted(plane, affinity=affinity))

    assert pod["affinity"] == affinity
    assert "nodeSelector" not in pod


SPREAD = {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, f"{POD}.nodeSelector[disk]"),
        ({"tolerations": [{"operator": "Exists"}]}, f"{POD}.tolerations[0].key"),
        (
            {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            f"{POD}.tolerations[0].key",
        ),
        (
            {"topologySpreadConstraints": [SPREAD]},
            f"{POD}.topologySpreadConstraints[0].topologyKey",
        ),
        ({"priorityClassName": "system-node-critical"}, f"{POD}.priorityClassName"),
    ],
)
def test_what_cannot_be_honoured_is_told_with_its_field(pod: dict[str, Any], field: str) -> None:
    record = submitted(a_plane(), **pod)

    assert record.state is State.REJECTED
    assert [error.field for error in record.errors] == [field]


def test_a_tenant_may_be_granted_keys_that_no_flavor_has() -> None:
    plane = a_plane(nodeLabels=["disk", "rack"], taints=["dedicated"])
    dedicated = {"key": "dedicated", "operator": "Exists"}

    record = submitted(
        plane,
        nodeSelector={"disk": "ssd"},
        tolerations=[dedicated],
        topologySpreadConstraints=[SPREAD],
    )

    pod = started(plane, record)
    assert pod["nodeSelector"]["disk"] == "ssd"
    assert dedicated in pod["tolerations"]
    assert pod["topologySpreadConstraints"] == [SPREAD]


def test_the_priority_class_of_pods_is_that_of_the_workload_and_no_pods_other() -> None:
    plane = a_plane()

    record = submitted(plane, priorityClassName="high")

    assert (record.priority_class, record.priority) == ("high", 7)
    assert "priorityClassName" not in started(plane, record)


def test_what_names_no_queue_goes_to_the_tenants_own_or_is_refused() -> None:
    assert submitted(a_plane(), labelled=False).state is State.REJECTED

    record = submitted(a_plane(defaultQueue="research"), labelled=False)

    assert (record.state, record.queue) == (State.PENDING, f"{NAMESPACE}/research")
