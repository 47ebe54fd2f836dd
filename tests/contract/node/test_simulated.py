"""The runtime `simulated`: durations instead of processes, for tests at scale."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from local.node.api import KubernetesApi
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import NodeProgram, await_ready

pytestmark = pytest.mark.stack
CROWD = 200


@pytest.fixture(scope="module")
def simulated(program: NodeProgram, api: KubernetesApi, node: str) -> Iterator[str]:
    """The session's node with the other runtime for a while."""
    program.stop()
    program.start("--runtime", "simulated")
    await_ready(api, node)
    yield node
    program.stop()
    program.start()
    await_ready(api, node)


@pytest.fixture
def cluster(api: KubernetesApi, simulated: str) -> Iterator[Cluster]:
    found = Cluster(api, simulated)
    yield found
    for name in found.pods:
        found.delete(name, grace_seconds=0)


def simulate(cluster: Cluster, **annotations: str) -> str:
    container = {"name": "main", "image": cluster.image}
    named = {
        f"sluice.dev/simulated-{key.replace('_', '-')}": annotations[key] for key in annotations
    }
    return cluster.run_pod({"containers": [container]}, annotations=named)


def test_a_simulated_pod_succeeds_without_a_process(cluster: Cluster) -> None:
    name = simulate(cluster)

    status = cluster.wait(name, "Succeeded")["status"]
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    assert {one["type"] for one in status["conditions"]} >= {"Ready", "Initialized"}


def test_it_runs_for_its_duration_and_ends_with_its_code(cluster: Cluster) -> None:
    name = simulate(cluster, duration="1.5", exit_code="4")

    cluster.wait(name, "Running")
    assert cluster.exit_state(name)["exitCode"] == 4


def test_a_deleted_one_goes_at_once(cluster: Cluster) -> None:
    name = simulate(cluster, duration="600")
    cluster.wait(name, "Running")

    cluster.delete(name)

    cluster.await_gone(name)


def test_a_crowd_of_pods_all_succeed(cluster: Cluster) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(lambda _: simulate(cluster), range(CROWD)))

    def succeeded() -> bool:
        pods = cluster.api.get("/api/v1/namespaces/default/pods")["items"]
        phases = [p["status"]["phase"] for p in pods if p["metadata"]["name"] in names]
        return phases.count("Succeeded") == CROWD

    until(succeeded, "all of the crowd succeed")
