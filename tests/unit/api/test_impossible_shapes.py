"""What no machine can hold: one answer from submission, its dry run, why, capacity and simulate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.machine_sizes import (
    MachineSize,
    largest,
    read_machine,
    wanted_types,
    why_never,
)
from sluice.core.config.model import ClusterQueue, FlavorQuotas, ResourceGroup
from sluice.core.lifecycle.record import PodSet, State

from tests.simulation.builders import queue, simulate, waiting
from tests.unit.api.control_plane import RED, ControlPlane, native

GIB = 2**30
BIG = MachineSize("m5.24xlarge", 96_000, 384 * GIB)
FAT = MachineSize("r5.12xlarge", 48_000, 384 * GIB)
WIDE = MachineSize("r5.24xlarge", 96_000, 768 * GIB)
GPUS = MachineSize("p4d.24xlarge", 96_000, 1_152 * GIB, {"nvidia.com/gpu": 8})


def a_plan(*sizes: MachineSize, pool: str = "spot", flavors: tuple[str, ...] = ("spot",)) -> Any:
    return PoolPlan(pool, flavors, ("spot",), largest=sizes)


def a_queue(*flavors: str) -> ClusterQueue:
    quotas = tuple(FlavorQuotas(name, {}) for name in flavors)
    return ClusterQueue("a", (ResourceGroup(("cpu", "memory", "nvidia.com/gpu"), quotas),))


def never(
    requests: dict[str, int], *plans: PoolPlan, flavors: tuple[str, ...] = ("spot",), **set_: Any
) -> str:
    pods = PodSet("main", 1, requests, **set_)
    return why_never([pods], a_queue(*flavors), {"c": plans}, {"c": ()})


def test_more_than_the_largest_machine_can_never_be_had() -> None:
    said = never({"cpu": 150_000}, a_plan(BIG, GPUS))

    assert "a pod of main asks for 150 cpu" in said
    assert "m5.24xlarge (96 cpu, 384Gi)" in said
    assert never({"cpu": 96_000}, a_plan(BIG)) == ""


def test_each_resource_may_fit_and_all_of_them_together_not() -> None:
    cpu, memory = MachineSize("c5.24xlarge", 96_000, 192 * GIB), FAT
    said = never({"cpu": 90_000, "memory": 300 * GIB}, a_plan(cpu, memory))

    assert "together" in said
    assert never({"cpu": 90_000, "memory": 300 * GIB}, a_plan(cpu, memory, WIDE)) == ""


def test_devices_count_and_what_ec2_does_not_count_is_taken_at_its_word() -> None:
    assert "8 nvidia.com/gpu" in never({"nvidia.com/gpu": 9}, a_plan(GPUS))
    assert never({"nvidia.com/gpu": 8}, a_plan(BIG, GPUS)) == ""
    assert never({"nvidia.com/gpu": 1}, a_plan(BIG))
    assert never({"example.com/licence": 3, "ephemeral-storage": 2**50}, a_plan(BIG)) == ""


@pytest.mark.parametrize(
    "plans",
    [(), (a_plan(),), (a_plan(BIG), a_plan(pool="other")), (a_plan(BIG, flavors=("x",)),)],
    ids=["no plan", "sizes unknown", "one pool unknown", "no pool serves it"],
)
def test_where_nothing_is_known_everything_fits(plans: tuple[PoolPlan, ...]) -> None:
    assert never({"cpu": 10**9}, *plans) == ""


def test_one_flavor_that_can_is_enough_unless_the_pods_may_not_have_it() -> None:
    plans = a_plan(BIG), a_plan(GPUS, WIDE, pool="large", flavors=("large",))
    asked, both = {"memory": 700 * GIB}, ("spot", "large")

    assert never(asked, *plans, flavors=both) == ""
    assert never(asked, *plans, flavors=both) == ""
    assert never({"memory": 1_000 * GIB}, *plans, flavors=("spot",))


def test_only_clusters_that_offer_the_flavor_count() -> None:
    pods = [PodSet("main", 1, {"memory": 700 * GIB})]
    plans = {"small": [a_plan(BIG)], "large": [a_plan(WIDE)]}
    queue = a_queue("spot")

    assert why_never(pods, queue, plans, {"small": (), "large": ()}) == ""
    assert why_never(pods, queue, plans, {"small": ("spot",), "large": ("other",)})


def a_pool(*requirements: tuple[str, str, list[str]]) -> dict[str, Any]:
    rules = [{"key": key, "operator": how, "values": values} for key, how, values in requirements]
    return {"metadata": {"name": "p"}, "spec": {"template": {"spec": {"requirements": rules}}}}


KARPENTER = "karpenter.k8s.aws/instance-"


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ((f"{KARPENTER}family", "In", ["m5"]), ["m5.24xlarge"]),
        ((f"{KARPENTER}cpu", "Lt", ["50"]), ["r5.12xlarge"]),
        ((f"{KARPENTER}memory", "Gt", ["500000"]), ["p4d.24xlarge"]),
        ((f"{KARPENTER}gpu-count", "DoesNotExist", []), ["r5.24xlarge"]),
        ((f"{KARPENTER}size", "NotIn", ["24xlarge"]), ["r5.12xlarge"]),
        ((f"{KARPENTER}category", "In", ["r"]), ["r5.24xlarge"]),
        (("node.kubernetes.io/instance-type", "In", ["m5.24xlarge"]), ["m5.24xlarge"]),
        (("kubernetes.io/arch", "In", ["arm64"]), []),
        (("example.com/rack", "In", ["7"]), ["p4d.24xlarge"]),
    ],
)
def test_only_types_that_the_pool_may_buy_count(
    rule: tuple[str, str, list[str]], kept: list[str]
) -> None:
    assert [one.type for one in largest(a_pool(rule), (BIG, FAT, WIDE, GPUS))] == kept


def test_of_which_types_ec2_is_asked() -> None:
    family, category = f"{KARPENTER}family", f"{KARPENTER}category"
    assert wanted_types(a_pool((family, "In", ["m5", "c5"]))) == ("c5.*", "m5.*")
    assert wanted_types(a_pool((category, "In", ["c"]))) == ("c*",)
    assert wanted_types(a_pool((category, "NotIn", ["c"]))) == ("*",)


def test_a_type_as_ec2_describes_it() -> None:
    document = {
        "InstanceType": "p4d.24xlarge",
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1_179_648},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 8}]},
    }
    assert read_machine(document) == GPUS


SMALL = MachineSize("m5.4xlarge", 16_000, 64 * GIB)
SAID = "a pod of main asks for 40 cpu; the largest machine that its queue can get is m5.4xlarge"


def test_all_four_say_the_same_and_so_does_submission() -> None:
    plane = ControlPlane()
    accepted = plane.send(native("before", 40))
    plane.pools.put("batch-1", [a_plan(SMALL)])
    refused = plane.send(native("after", 40))
    fits = plane.send(native("fits", 16))

    dry = plane.call("POST", "/whatif", RED, {"documents": [native("dry", 40)]})[1]
    simulated = simulate(
        queue("q", cpu=100), waiting("w", "q", cpu=40), passes=None,
        machines={"default": [{"type": "m5.4xlarge", "cpu": 16, "memory": "64Gi"}]},
    )  # fmt: skip

    assert dry["items"][0]["result"] == "would be rejected"
    assert SAID in dry["items"][0]["errors"][0]["message"]
    assert plane.workloads.rows[refused].state is State.REJECTED
    assert SAID in why(plane, refused)["headline"]
    assert plane.workloads.rows[fits].state is not State.REJECTED
    assert "m5.4xlarge (16 cpu, 64Gi)" in str(plane.call("GET", "/capacity", RED)[1])
    (waits,) = simulated.report["pending"]
    assert waits["reason"] == "MISCONFIGURATION:RequestLargerThanAnyNode"
    assert SAID in waits["message"]

    start(plane, accepted)
    told = why(plane, accepted)
    assert told["headline"].startswith(f"It can never run as it is: {SAID}")
    assert told["reason"]["code"] == "MISCONFIGURATION:RequestLargerThanAnyNode"
    assert "change the request" in told["toDo"]


def test_who_waits_since_before_the_pool_shrank_is_not_admitted_and_hears_why() -> None:
    plane = ControlPlane()
    first = plane.send(native("first", 60))
    second = plane.send(native("second", 40))
    plane.pools.put("batch-1", [a_plan(SMALL)])
    plane.call("POST", f"/workloads/{first}/cancel", RED, {})
    plane.settle()

    assert plane.workloads.rows[second].state is State.PENDING
    told = why(plane, second)
    assert SAID in told["headline"]
    assert told["wouldHelp"] == []


def start(plane: ControlPlane, workload: str) -> None:
    now = plane.clock.now()
    row = plane.workloads.rows[workload]
    assert row.state is State.ADMITTED
    begun = replace(row, state=State.DISPATCHED, uid="u", dispatched_at=now)
    plane.workloads.rows[workload] = begun


def why(plane: ControlPlane, workload: str) -> Any:
    return plane.call("GET", f"/workloads/{workload}/why", RED)[1]
