"""A deployed stack whose machines are real kubelets; skipped where the machine cannot hold one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local import stack as embedded
from local.errors import PreparationError
from local.kubelet_node.preparation import prepare
from local.settings import Settings, default_cache
from tests.e2e.stack import BUCKET, INSTANCE_SECONDS, TENANTS, Stack

FLAVOR, CLUSTER, TENANT = TENANTS
PLAIN = CLUSTER | {"spec": {"flavors": CLUSTER["spec"]["flavors"]}}  # no add-on runs there


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its tenant's images run as root, which kubelets do not let them."""
    try:
        prepare(default_cache(), print)
    except PreparationError as reason:
        pytest.skip(str(reason))
    state = tmp_path_factory.mktemp("kubelets")
    settings = Settings(state, default_cache(), instance_delay=INSTANCE_SECONDS, nodes="kubelet")
    try:
        found = Stack(embedded.up(settings, print))
        found.apply(FLAVOR, PLAIN, TENANT | {"spec": {**TENANT["spec"], "runAsUser": 1000}})
        found.client("s3").create_bucket(Bucket=BUCKET)
        yield found
    finally:
        embedded.down(state)
