"""Real programs go on at another kubelet where they were, with all that they held; for the soak."""

import time

import pytest

from local.node.api import KubernetesApi
from tests.contract.kubelet.conftest import joined
from tests.contract.kubelet.test_checkpoint import answer, order, pod_of
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import Machines
from tests.programs import corpus

pytestmark = [pytest.mark.kubelet, pytest.mark.stack, pytest.mark.slow, pytest.mark.soak]

BUCKET = "checkpoints-of-the-contract"
WORKED_STEPS = 5
ALONE = [program for program in corpus.LIGHT if not program.needs]
"""Those that need no more than the image has: Python and a shell."""
RING = (
    "import ctypes, time\n"
    "libc, parameters = ctypes.CDLL(None), ctypes.create_string_buffer(120)\n"
    "print('ring', libc.syscall(425, 8, parameters), flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.fixture(scope="module")
def cluster_of_module(api: KubernetesApi, node: str) -> Cluster:
    return Cluster(api, node)


@pytest.fixture(scope="module")
def elsewhere(api: KubernetesApi, machines: Machines, agents: None) -> Cluster:
    machines.s3.create_bucket(Bucket=BUCKET)
    return Cluster(api, joined(api, machines))


@pytest.fixture(scope="module")
def started(cluster_of_module: Cluster, elsewhere: Cluster) -> dict[str, str]:
    """All programs at once; pods by program."""
    return {one.name: pod_of(cluster_of_module, list(one.command), name_of(one)) for one in ALONE}


def name_of(program: corpus.Program) -> str:
    return program.name.replace(".", "-")


def last_step(cluster: Cluster, name: str) -> int:
    """The last step in the log, whose lines may stand there twice; -1 before the first."""
    pod = cluster.pod(name)
    assert pod
    phase = pod["status"].get("phase")
    assert phase not in ("Failed", "Succeeded"), cluster.logs(name)[-2000:]
    if phase != "Running":
        return -1
    steps = [int(x.split()[1]) for x in cluster.logs(name).splitlines() if x.startswith("ok ")]
    return max(steps, default=-1)


@pytest.mark.parametrize("moved", ALONE, ids=lambda moved: moved.name)
def test_a_program_of_the_corpus_moves(
    started: dict[str, str],
    moved: corpus.Program,
    cluster_of_module: Cluster,
    elsewhere: Cluster,
) -> None:
    source = started[moved.name]
    cluster_of_module.await_line(source, f"ok {WORKED_STEPS}")

    order(cluster_of_module, source, "move-1")
    saved = answer(cluster_of_module, source, "move-1")
    assert "error" not in saved, saved["error"]
    known = last_step(cluster_of_module, source)
    cluster_of_module.delete(source, grace_seconds=0)
    cluster_of_module.await_gone(source)
    restoring = time.monotonic()
    there = pod_of(elsewhere, list(moved.command), name_of(moved), saved["image"])
    until(lambda: last_step(elsewhere, there) > known, f"{moved.name} goes on", 60)

    seconds = time.monotonic() - restoring
    until(lambda: last_step(elsewhere, there) >= known + WORKED_STEPS, "and goes on")
    size = saved["bytes"] / 1e6
    print(f"\n| {moved.name} | {size:.0f} MB | {saved['seconds']:.1f} s | {seconds:.1f} s |")
    elsewhere.delete(there, grace_seconds=0)


def test_criu_says_why_a_program_cannot_be_saved(
    cluster_of_module: Cluster, elsewhere: Cluster
) -> None:
    """A filter of system calls would not have let it make the ring."""
    free = {"seccompProfile": {"type": "Unconfined"}}
    command = ["python3", "-c", RING]
    name = pod_of(cluster_of_module, command, "ring", security=free)
    cluster_of_module.await_line(name, "ring")
    if "ring -1" in cluster_of_module.logs(name):
        pytest.skip("this kernel has io_uring switched off")

    order(cluster_of_module, name, "trial-1")

    error = answer(cluster_of_module, name, "trial-1")["error"]
    assert error.startswith("CRIU refuses it: ")
    assert "io_uring" in error
    cluster_of_module.delete(name, grace_seconds=0)
