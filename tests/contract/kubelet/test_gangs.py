"""A gang on real kubelets: dumped as one set, held, ended, and each member restored elsewhere."""

import base64
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from sluice.adapters.kubernetes_cluster import KubernetesCluster
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.intake.rendering import Generation, PodPlacement, render
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import State
from sluice.core.migrations import gangs, migration
from sluice.core.migrations.migration import PodCheckpoint
from sluice.core.migrations.pod_annotations import ORDER, result_of_order
from sluice.usecases.migrations.pods_of_run import all_pods_of
from sluice.usecases.migrations.restore_gang_members import RestoreGangMembers
from sluice.usecases.migrations.stop_run import find, stop
from sluice.usecases.running.start_gangs import start_gang

from local import control_plane
from local.node.api import ApiError, KubernetesApi
from local.settings import Layout
from tests.contract.kubelet.conftest import joined
from tests.contract.kubelet.test_checkpoint import BUCKET, COUNTER, bucket
from tests.contract.node.cluster import NAMESPACE, Cluster, until
from tests.contract.node.conftest import Machines
from tests.fakes import MemoryMigrations, MemoryWorkloads
from tests.records import options_of
from tests.unit.usecases.plane import admitted

__all__ = ["bucket"]
pytestmark = [pytest.mark.kubelet, pytest.mark.stack, pytest.mark.slow]
GANG = "gangofkubelets"
MEMBERS = ("0", "1")
ENOUGH = 5
HELD_SECONDS = 3  # a kubelet starts such a container in less
BEATS = 10  # of the counters, one each tenth of a second
MANIFEST = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "gang"},
    "spec": {
        "completionMode": "Indexed",
        "completions": len(MEMBERS),
        "parallelism": len(MEMBERS),
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "python:3.11",
                        "command": ["python3", "-c", COUNTER],
                        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
                    }
                ],
            }
        },
    },
}


class Gang:
    """A workload of two members as Sluice has it, in a cluster without a scheduler."""

    def __init__(self, api: KubernetesApi, kubernetes: KubernetesCluster) -> None:
        self.api, self.kubernetes = api, kubernetes
        self.workloads, self.migrations = MemoryWorkloads(), MemoryMigrations()
        record = admitted(GANG, state=State.DISPATCHED)
        assert record.reservation is not None
        assigned = replace(record.reservation.pod_sets[0], count=len(MEMBERS))
        reservation = replace(record.reservation, pod_sets=(assigned,))
        self.record = replace(record, namespace=NAMESPACE, reservation=reservation)

    def starts(self, generation: int = 0, source: str = "") -> None:
        run = Generation(
            id=GANG,
            name="gang",
            namespace=NAMESPACE,
            queue=f"{NAMESPACE}/q",
            generation=generation,
            placements={"main": PodPlacement(len(MEMBERS), tolerations=[{"operator": "Exists"}])},
            options=options_of(
                {"checkpoint": {"mode": "kubelet"}, "security": {"run_as_user": 1000}}
            ),
            restore_from=source or None,
            checkpoints=f"s3://{BUCKET}/checkpoints/",
        )
        (job,) = render(MANIFEST, run)
        made = self.kubernetes.create(job | {"spec": job["spec"] | {"suspend": False}})
        assert isinstance(made, dict)
        self.record = replace(
            self.record, generation=generation, uid=made["metadata"]["uid"], restore_from=source
        )
        self.workloads.write(self.record)
        until(lambda: set(self.pods()) == set(MEMBERS), "the Job has made its pods")

    def pods(self) -> dict[str, dict[str, Any]]:
        """By index."""
        return {gangs.part_of(pod): pod for pod in all_pods_of(self.kubernetes, self.record)}

    def is_scheduled(self, nodes: dict[str, str]) -> None:
        for index, pod in self.pods().items():
            name = pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": nodes[index]}
            body = {"metadata": {"name": name}, "target": target}
            self.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding", body)

    def containers_start(self) -> None:
        """As `act` lets them, once every pod has a machine."""
        until(lambda: all(map(bound, self.pods().values())), "every pod is bound")
        for wake in start_gang(self.kubernetes, self.record):
            wake()

    def counted(self) -> dict[str, list[tuple[int, str]]]:
        """Index → number and secret of every line, without what stands there twice."""
        found = {}
        for index, pod in self.pods().items():
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/log"
            try:
                lines = [line.split() for line in self.api.read(path).decode().splitlines()]
            except ApiError:  # not started yet
                lines = []
            found[index] = sorted({(int(number), secret) for _, number, secret in lines})
        return found

    def counts(self, beyond: dict[str, int]) -> Callable[[], dict[str, list[tuple[int, str]]]]:
        """What was counted, once every member has counted further than that."""

        def counted() -> dict[str, list[tuple[int, str]]]:
            found = self.counted()
            there = all(len(found.get(index, ())) > n for index, n in beyond.items())
            return found if there else {}

        return counted

    def is_saved(self, order: str) -> dict[str, PodCheckpoint]:
        for pod in self.pods().values():
            change = {"metadata": {"annotations": {ORDER: order}}}
            self.kubernetes.patch("Pod", NAMESPACE, pod["metadata"]["name"], change)

        def answers() -> dict[str, PodCheckpoint | str]:
            found = {index: result_of_order(order, pod) for index, pod in self.pods().items()}
            return {i: each for i, each in found.items() if each} if all(found.values()) else {}

        found = until(answers, "both are saved")
        assert all(isinstance(each, PodCheckpoint) for each in found.values()), found
        return dict(found)

    def ends(self) -> list[int]:
        """Stopped as one that is saved; the failures that its Job showed meanwhile."""
        failures = [0]

        def gone() -> bool:
            job = find(self.kubernetes, self.record)
            failures.append(((job or {}).get("status") or {}).get("failed", 0))
            change = stop(self.kubernetes, self.record, 0, 1)
            assert change is None or change == lifecycle.gone(self.record)
            return change is not None

        until(gone, "the gang is gone")
        return failures


def bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


@pytest.fixture
def kubernetes(control: tuple[Layout, Machines]) -> KubernetesCluster:
    layout, _ = control
    written = yaml.safe_load(layout.kubeconfig.read_text())
    (server,), (user,) = written["clusters"], written["users"]
    authority = base64.b64decode(control_plane.authority_data(layout)).decode()
    return KubernetesCluster(
        server["cluster"]["server"], authority, lambda: str(user["user"]["token"])
    )


@pytest.mark.usefixtures("bucket")
def test_a_gang_is_held_from_its_dump_on_and_goes_on_as_one(
    cluster: Cluster, machines: Machines, api: KubernetesApi, kubernetes: KubernetesCluster
) -> None:
    here, there = cluster.node, joined(api, machines)
    gang = Gang(api, kubernetes)
    gang.starts()
    gang.is_scheduled({"0": here, "1": there})
    time.sleep(HELD_SECONDS)
    assert not any(gang.counted().values()), "a container started before its gang"
    gang.containers_start()
    until(gang.counts(dict.fromkeys(MEMBERS, ENOUGH)), "both count")

    saved = gang.is_saved("move-0")
    held = gang.counted()
    assert all(one.held_at >= one.at > 0 for one in saved.values())
    made = migration.whole_checkpoint(gang.record, saved.values(), CheckpointMode.KUBELET, {})
    assert made is not None
    gang.migrations.keep(made, retain=3)
    time.sleep(BEATS * 0.1)
    assert gang.counted() == held, "a member works on after its dump"
    assert set(gang.ends()) == {0}

    gang.starts(1, made.source)
    assert all(gangs.waits_for_part(pod) for pod in gang.pods().values())
    RestoreGangMembers(gang.workloads, gang.migrations)(kubernetes, gang.record)
    gang.is_scheduled({"0": there, "1": here})
    gang.containers_start()
    last = {index: len(lines) for index, lines in held.items()}
    found = until(gang.counts({i: n + ENOUGH for i, n in last.items()}), "both count on")
    for index, lines in found.items():
        numbers, secrets = zip(*lines, strict=True)
        assert numbers == tuple(range(len(lines))), f"member {index} lacks counts"
        assert set(secrets) == {held[index][0][1]}, f"member {index} is another, or began anew"
    gang.ends()
