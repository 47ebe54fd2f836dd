"""Real programs go on where they were, with all that they held, on another machine."""

import time
from collections.abc import Iterator

import pytest

from local.node.api import KubernetesApi
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import Machines, await_ready
from tests.contract.node.test_checkpoint import CRIU, SAVED, archive_of
from tests.programs.corpus import LIGHT, Program

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(CRIU.program is None, reason=CRIU.reason or "no CRIU"),
]
WORKED_STEPS = 5
MEGABYTE = 1e6


@pytest.fixture(scope="module")
def elsewhere(cluster_of_module: Cluster, machines: Machines) -> Iterator[Cluster]:
    """Another machine."""
    instance = machines.launch()
    await_ready(cluster_of_module.api, instance["PrivateDnsName"])
    yield Cluster(cluster_of_module.api, instance["PrivateDnsName"])
    machines.terminate(instance["InstanceId"])


@pytest.fixture(scope="module")
def cluster_of_module(api: KubernetesApi, node: str) -> Cluster:
    return Cluster(api, node)


@pytest.fixture(scope="module")
def started(cluster_of_module: Cluster) -> dict[str, str]:
    """All programs at once, as their starts take longer than their moves; pods by program."""
    return {
        program.name: run(cluster_of_module, program) for program in LIGHT if not program.missing
    }


def run(cluster: Cluster, program: Program, **annotations: str) -> str:
    container = {"name": "main", "image": cluster.image, "command": list(program.command)}
    return cluster.run_pod({"containers": [container]}, annotations=SAVED | annotations)


def last_step(cluster: Cluster, name: str) -> int:
    """The last step in the log; -1 before the first."""
    pod = cluster.pod(name)
    assert pod
    if pod["status"].get("phase") in ("Failed", "Succeeded"):
        raise AssertionError(cluster.logs(name)[-2000:])
    if pod["status"].get("phase") != "Running":
        return -1
    steps = [line.split()[1] for line in cluster.logs(name).splitlines() if line.startswith("ok ")]
    assert steps == [str(number) for number in range(len(steps))]
    return len(steps) - 1


@pytest.mark.parametrize("moved", LIGHT, ids=lambda one: one.name)
def test_it_goes_on_with_its_state(
    moved: Program,
    started: dict[str, str],
    cluster_of_module: Cluster,
    elsewhere: Cluster,
) -> None:
    if moved.missing:
        pytest.skip(f"this machine has no {moved.missing}")
    source = started[moved.name]
    until(lambda: last_step(cluster_of_module, source) >= WORKED_STEPS, f"{moved.name} has worked")

    began = time.monotonic()
    archive = archive_of(cluster_of_module, source)
    saved = time.monotonic()
    cluster_of_module.delete(source, grace_seconds=0)
    cluster_of_module.await_gone(source)
    restoring = time.monotonic()
    there = run(elsewhere, moved, **{"sluice.dev/restore-from": str(archive)})
    until(lambda: last_step(elsewhere, there) >= 0, f"{moved.name} is there again")
    known = last_step(elsewhere, there)
    until(lambda: last_step(elsewhere, there) > known, f"{moved.name} goes on")
    went_on = time.monotonic()

    assert known >= WORKED_STEPS
    until(lambda: last_step(elsewhere, there) >= known + WORKED_STEPS, "and goes on")
    if moved.name == "connection":
        assert elsewhere.logs(there).splitlines()[-1].endswith("broken connections: 1")
    print(
        f"\n| {moved.name} | {archive.stat().st_size / MEGABYTE:.0f} MB"
        f" | {saved - began:.1f} s | {went_on - restoring:.1f} s |"
    )
    elsewhere.delete(there, grace_seconds=0)
    archive.unlink()
