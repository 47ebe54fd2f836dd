"""What a kubelet says of a checkpoint from which nothing starts, and what Sluice understands."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
from sluice.core.lifecycle.record import State, Workload
from sluice.core.migrations.restoring import why_not_restored

from agent.registry import Repository
from tests.contract.kubelet.test_checkpoint import BUCKET, COUNTER, answer, bucket, job, order
from tests.contract.kubelet.test_registry import summed
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import Machines
from tests.records import options_of

__all__ = ["bucket"]

pytestmark = [pytest.mark.kubelet, pytest.mark.stack, pytest.mark.slow]
RUNNING: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {}}


def why(cluster: Cluster, name: str, image: str) -> str:
    """As `observe` sees it."""
    restored = Workload(
        "w", "w", "team", "q", State.DISPATCHED,
        restore_from=image, options=options_of({"checkpoint": {"mode": "kubelet"}}),
    )  # fmt: skip
    pod = cluster.pod(name)
    return why_not_restored(restored, RUNNING, [pod] if pod else [])


@pytest.mark.usefixtures("bucket")
def test_a_damaged_checkpoint_and_one_that_is_gone_are_told_from_a_slow_start(
    cluster: Cluster, machines: Machines, tmp_path: Path
) -> None:
    source = job(cluster, COUNTER, "torn")
    cluster.await_line(source, "count 3")
    order(cluster, source, "move-1")
    saved = answer(cluster, source, "move-1")
    cluster.delete(source, grace_seconds=0)
    whole, torn = tmp_path / "whole.tar", tmp_path / "torn.tar"
    key = saved["uri"].removeprefix(f"s3://{BUCKET}/")
    machines.s3.download_file(BUCKET, key, str(whole))
    with tarfile.open(whole) as old, tarfile.open(torn, "w") as new:
        for member in old:
            if "/pages-" not in member.name:
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
    repository = saved["image"].rpartition(":")[0]
    damaged = Repository(repository).push("damaged", torn, "main", summed(torn))
    gone = f"{repository}:gone"

    for image, word in ((damaged, "criu"), (gone, "ImagePullBackOff")):
        name = job(cluster, COUNTER, "torn", image, {"sluice.dev/restore-from": image})
        told = until(lambda name=name, image=image: why(cluster, name, image), f"{image} fails")
        assert word in told, told
        cluster.delete(name, grace_seconds=0)
