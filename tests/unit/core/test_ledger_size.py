"""A ledger stays within DynamoDB's item, or the configuration is refused."""

from __future__ import annotations

import json
import random

import pytest
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.kueue_objects import parse_objects
from sluice.core.passes.ledger_size import (
    ITEM_BYTES,
    MOST_LEDGER_BYTES,
    ledger_bytes,
    packed,
    unpacked,
)
from sluice.usecases.request_errors import InvalidError
from sluice.usecases.steering.limits import check_ledgers

SMALL = {"a": {"spot|cpu": 1000}}


def a_usage(queues: int, flavors: int) -> dict[str, dict[str, int]]:
    dice = random.Random(7)
    return {
        f"team-{number}": {
            f"flavor-{flavor}|{resource}": dice.randrange(10**12)
            for flavor in range(flavors)
            for resource in ("cpu", "memory")
        }
        for number in range(queues)
    }


def a_catalog(queues: int, flavors: int = 8) -> QueueCatalog:
    names = [f"flavor-{number}" for number in range(flavors)]
    quotas = [{"name": each, "nominalQuota": "1"} for each in ("cpu", "memory")]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": name, "resources": quotas} for name in names],
    }
    documents = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": f"team-{number}"},
            "spec": {"cohortName": "root", "namespaceSelector": {}, "resourceGroups": [group]},
        }
        for number in range(queues)
    ]
    documents += [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {},
        }
        for name in names
    ]
    objects = parse_objects(documents)
    return QueueCatalog(
        flavors=objects.resource_flavors,
        cohorts=objects.cohorts,
        cluster_queues=objects.cluster_queues,
        local_queues=objects.local_queues,
    )


@pytest.mark.parametrize("usage", [{}, SMALL, a_usage(300, 8)])
def test_what_is_packed_is_unpacked_as_it_was(usage: dict[str, dict[str, int]]) -> None:
    assert unpacked(packed(usage)) == usage


def test_a_small_ledger_stays_readable_and_a_large_one_takes_a_third() -> None:
    large = a_usage(300, 8)

    assert packed(SMALL) is SMALL
    assert len(packed(large)) * 3 < len(json.dumps(large))


def test_what_is_assumed_of_amounts_is_not_less_than_what_they_take() -> None:
    cells, size = ledger_bytes(a_catalog(200), "root")

    assert cells == 200 * 16
    assert size >= 0.9 * len(packed(a_usage(200, 8)))


def test_a_thousand_queues_of_sixteen_quotas_are_taken_and_three_thousand_refused() -> None:
    check_ledgers(a_catalog(1_000), ["root", "unknown"])

    with pytest.raises(InvalidError, match=r"48,000 quotas .* 200 KB .* DynamoDB"):
        check_ledgers(a_catalog(3_000), ["root"])
    assert MOST_LEDGER_BYTES * 2 == ITEM_BYTES
