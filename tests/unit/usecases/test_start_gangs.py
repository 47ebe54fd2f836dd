"""No container of a gang runs before every pod of it has a machine, and nothing is left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from threading import Barrier, Lock
from typing import Any

import pytest
from sluice.core.config.model import PodSetAssignment
from sluice.core.jobs import gang_start
from sluice.core.lifecycle.record import IntentKind, Reservation, State, Workload
from sluice.errors import ClusterError

from tests.fakes import INDEX, FakeClock, FakeKubernetes
from tests.unit.usecases.plane import NAMESPACE, Plane, admitted
from tests.unit.usecases.world import CLUSTER, MANIFEST

LATE = 900_000


@dataclass
class Market(FakeKubernetes):
    """Sells `left` machines, one for each pod, and takes some back."""

    left: int = 0

    def _scheduled(self, pod: dict[str, Any]) -> dict[str, Any]:
        if self.left <= 0:
            return pod
        self.left -= 1
        return super()._scheduled(pod)

    def lose(self, node: str) -> None:
        self.vanish(node)
        self.notice_the_dead()


def a_gang(plane: Plane, name: str, size: int) -> Workload:
    assigned = PodSetAssignment("main", size, {"cpu": "spot"})
    reservation = Reservation(0, "a", CLUSTER, FakeClock.time, (assigned,))
    workload = admitted(name, reservation=reservation)
    indexed = {"completionMode": "Indexed", "parallelism": size, "completions": size}
    manifest = {**MANIFEST, "spec": {**MANIFEST["spec"], **indexed}}
    plane.manifests.put_many({workload.manifest_key: manifest})
    return plane.put(workload)


def pods_of(plane: Plane, name: str) -> list[dict[str, Any]]:
    return [
        pod
        for (kind, _, _), pod in plane.kubernetes.objects.items()
        if kind == "Pod" and pod["metadata"]["labels"]["sluice.dev/workload"] == name
    ]


def running(plane: Plane, name: str) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in pods_of(plane, name))


def bound(plane: Plane, name: str) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods_of(plane, name))


def follow(plane: Plane) -> None:
    """`observe` looks once, and `act` does what it was sent."""
    plane.look()
    while plane.commands.sent:
        cluster, ids = plane.commands.sent.pop(0)
        plane.act()(cluster, ids)


def a_plane(left: int) -> tuple[Plane, Market]:
    market = Market(left=left)
    return Plane(kubernetes=market), market


def test_three_of_four_members_wait_for_the_fourth() -> None:
    plane, market = a_plane(left=3)
    a_gang(plane, "w1", 4)
    plane.act()(CLUSTER, ["w1"])

    follow(plane)
    assert (bound(plane, "w1"), running(plane, "w1")) == (3, 0)
    assert not plane.record().started_at
    assert not plane.record().reason, "to wait for the others is no mistake of the submitter"

    market.left = 1
    market.provide()
    follow(plane)
    assert running(plane, "w1") == 4
    follow(plane)
    assert plane.record().started_at


def test_a_gang_that_never_gets_its_machines_goes_back_and_leaves_nothing() -> None:
    plane, _ = a_plane(left=3)
    a_gang(plane, "w1", 4)
    plane.act()(CLUSTER, ["w1"])
    plane.clock.pass_ms(LATE + 1)

    follow(plane)
    intent = plane.record().intent
    assert intent is not None
    assert intent.kind is IntentKind.REQUEUE
    assert intent.not_before > plane.clock.now()

    plane.act()(CLUSTER, ["w1"])
    follow(plane)
    assert plane.record().gone
    assert not pods_of(plane, "w1")
    assert not [key for key in plane.kubernetes.objects if key[0] in ("Job", "ConfigMap")]


def test_a_job_of_one_pod_starts_by_itself() -> None:
    plane, _ = a_plane(left=1)
    a_gang(plane, "w1", 1)

    plane.act()(CLUSTER, ["w1"])

    assert running(plane, "w1") == 1


def test_a_member_that_begins_again_does_not_wait_for_the_others() -> None:
    plane, market = a_plane(left=4)
    a_gang(plane, "w1", 4)
    plane.act()(CLUSTER, ["w1"])
    follow(plane)
    assert running(plane, "w1") == 4

    market.left = 1
    market.lose(pods_of(plane, "w1")[0]["spec"]["nodeName"])
    market.provide()

    assert running(plane, "w1") == 4


def test_a_job_that_is_being_deleted_starts_nobody() -> None:
    plane, _ = a_plane(left=4)
    a_gang(plane, "w1", 4)
    plane.act()(CLUSTER, ["w1"])
    job = plane.job()
    assert job is not None
    going = {**job["metadata"], "deletionTimestamp": "now"}
    plane.kubernetes.objects["Job", NAMESPACE, job["metadata"]["name"]] = {**job, "metadata": going}

    plane.act()(CLUSTER, ["w1"])

    assert running(plane, "w1") == 0


def test_a_crash_between_the_config_map_and_the_pods_is_repaired() -> None:
    plane, market = a_plane(left=2)
    a_gang(plane, "w1", 2)
    plane.act()(CLUSTER, ["w1"])
    patch = market.patch
    market.patch = lambda *_: (_ for _ in ()).throw(ClusterError("away"))  # type: ignore[method-assign]
    market._start_held = lambda _: None  # type: ignore[method-assign]  # kubelets look later
    with pytest.raises(ClusterError):
        plane.act()(CLUSTER, ["w1"])
    for pod in pods_of(plane, "w1"):
        key = "Pod", NAMESPACE, pod["metadata"]["name"]
        market.objects[key] = {**pod, "status": held(0)["status"]}
    market.patch = patch  # type: ignore[method-assign]

    follow(plane)

    annotations = [pod["metadata"]["annotations"] for pod in pods_of(plane, "w1")]
    assert [gang_start.STARTED in each for each in annotations] == [True, True]


@pytest.mark.parametrize("seed", range(200))
def test_random_gangs_in_a_market_that_sells_out_start_as_one_or_not_at_all(seed: int) -> None:
    dice = Random(seed)
    plane, market = a_plane(left=dice.randint(0, 6))
    sizes = {f"w{n}": dice.randint(2, 12) for n in range(dice.randint(1, 3))}
    for name, size in sizes.items():
        a_gang(plane, name, size)
    begun = set[str]()
    for _ in range(60):
        take_a_step(plane, market, dice, list(sizes))
        fresh = {name for name in sizes if running(plane, name)} - begun
        assert [n for n in fresh if bound(plane, n) != sizes[n]] == []
        begun |= fresh

    plane.clock.pass_ms(2 * LATE)
    for _ in range(6):
        follow(plane)
        plane.act()(CLUSTER, list(sizes))
    gone = [name for name in sizes if plane.record(name).gone]
    assert [name for name in gone if pods_of(plane, name) or plane.job(name)] == []
    owners = [
        owner["kind"]
        for (kind, _, _), found in market.objects.items()
        if kind == "ConfigMap"
        for owner in found["metadata"]["ownerReferences"]
    ]
    assert set(owners) <= {"Job"}


def take_a_step(plane: Plane, market: Market, dice: Random, names: list[str]) -> None:
    match dice.choice(("act", "look", "sell", "lose", "wait", "act")):
        case "act":
            plane.act()(CLUSTER, names)
        case "look":
            follow(plane)
        case "sell":
            market.left += dice.randint(0, 4)
            market.provide()
        case "lose":
            nodes = sorted({n for m in names for p in pods_of(plane, m) if (n := node_of(p))})
            if nodes:
                market.lose(dice.choice(nodes))
        case _:
            plane.clock.pass_ms(dice.choice((1_000, 30_000, LATE)))


def node_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "")


def test_pods_that_leave_their_machine_do_not_count() -> None:
    pods = [a_pod(n, nodeName=f"n{n}") for n in range(3)]
    assert gang_start.may_start(pods)

    leaving = {**pods[0], "metadata": {**pods[0]["metadata"], "deletionTimestamp": "now"}}
    assert not gang_start.may_start([leaving, *pods[1:]])
    assert not gang_start.may_start(pods[1:])
    assert gang_start.may_start([leaving, *pods[1:], a_pod(9, nodeName="n9")])


def a_pod(number: int, **spec: Any) -> dict[str, Any]:
    annotations = {gang_start.SIZE: "3"}
    labels = {INDEX: str(number)}
    return {"metadata": {"name": str(number), "labels": labels, "annotations": annotations},
            "spec": spec}  # fmt: skip


def held(number: int, gang: str = "w-w1-g0-gang") -> dict[str, Any]:
    message = f'configmap "{gang}" not found'
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    return with_state(number, waiting)


def with_state(number: int, state: dict[str, Any]) -> dict[str, Any]:
    status = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}
    return a_pod(number, nodeName=f"n{number}") | {"status": status}


def test_the_next_indexes_of_an_array_start_nobody_again() -> None:
    running, ended = ({"running": {}}, {"terminated": {"exitCode": 0}})
    fresh = [a_pod(n, nodeName=f"n{n}") for n in range(3)]

    assert not gang_start.may_start([with_state(7, running), *fresh])
    assert not gang_start.may_start(fresh, ended=[with_state(8, ended)])
    assert not gang_start.may_start([with_state(n, running) for n in range(3)])


def test_a_member_that_its_kubelet_still_holds_is_woken_although_others_run() -> None:
    others = [with_state(n, {"running": {}}) for n in range(2)]

    assert gang_start.may_start([held(2), *others])
    woken = held(2)
    woken["metadata"]["annotations"][gang_start.STARTED] = "true"
    assert not gang_start.may_start([woken, *others])


def test_another_missing_config_map_wakes_nobody() -> None:
    others = [with_state(n, {"running": {}}) for n in range(2)]

    assert not gang_start.may_start([held(2, gang="settings"), *others])


def test_a_container_that_kubernetes_counts_as_ended_without_a_start_keeps_nobody_waiting() -> None:
    lost = with_state(9, {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}})

    assert gang_start.may_start([held(n) for n in range(3)], ended=[lost])


def test_stages_of_a_job_set_in_order_are_gangs_of_their_own() -> None:
    first = [a_pod(n, nodeName=f"n{n}") for n in range(3)]
    second = [a_pod(n) for n in range(3, 5)]
    for pods, stage in ((first, "leader"), (second, "workers")):
        for pod in pods:
            pod["metadata"]["annotations"][gang_start.GANG] = f"w-w1-g0-gang-{stage}"
    gangs = gang_start.group([*first, *second])

    assert {name: gang_start.may_start(pods) for name, pods in gangs.items()} == {
        "w-w1-g0-gang-leader": True,
        "w-w1-g0-gang-workers": False,
    }


def test_an_array_sends_no_command_once_it_runs() -> None:
    plane, _ = a_plane(left=3)
    a_gang(plane, "w1", 3)
    plane.act()(CLUSTER, ["w1"])
    follow(plane)
    assert running(plane, "w1") == 3

    plane.look()

    assert plane.commands.sent == []


def test_all_members_of_a_large_gang_are_woken_side_by_side() -> None:
    plane, market = a_plane(left=8)
    a_gang(plane, "w1", 8)
    together, one_by_one, patch = Barrier(4, timeout=5), Lock(), market.patch

    def slow(kind: str, *rest: Any) -> Any:
        if kind == "Pod":
            together.wait()
        with one_by_one:
            return patch(kind, *rest)

    market.patch = slow  # type: ignore[method-assign]
    act = replace(plane.act(), pool=ThreadPoolExecutor(8))
    act(CLUSTER, ["w1"])
    act(CLUSTER, ["w1"])

    annotations = [pod["metadata"]["annotations"] for pod in pods_of(plane, "w1")]
    assert sum(gang_start.STARTED in each for each in annotations) == 8


def test_a_record_that_runs_already_is_left_alone() -> None:
    plane, _ = a_plane(left=2)
    plane.workloads.write(replace(a_gang(plane, "w1", 2), state=State.FINISHED))

    plane.act()(CLUSTER, ["w1"])

    assert not plane.kubernetes.objects
