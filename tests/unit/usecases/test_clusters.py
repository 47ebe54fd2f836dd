"""Which cluster an admitted workload goes to, and why; wishes about flavors and clusters."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from sluice.core.clusters.fleet import SILENT_MS, cost
from sluice.core.config.document import DocumentError
from sluice.core.config.kueue_objects import parse_objects
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State, Workload
from sluice.core.passes.admission_cycle import decide
from sluice.ports import CatalogEdit
from sluice.usecases.configuration import configured
from sluice.usecases.fleet import beat

from tests.unit.usecases.plane import Plane, a_workload
from tests.unit.usecases.world import CLUSTER, FLAVOR, ROOT, queue

SPOT, ON_DEMAND = "spot", "on-demand"


def flavor(name: str, **annotations: str) -> dict[str, Any]:
    labels = {"karpenter.sh/nodepool": name, "karpenter.sh/capacity-type": name}
    metadata = {"name": name, "annotations": annotations}
    return {**FLAVOR, "metadata": metadata, "spec": {"nodeLabels": labels}}


def two_flavors(*order: str) -> dict[str, Any]:
    made = queue("a", 4)
    (group,) = made["spec"]["resourceGroups"]
    resources = group["flavors"][0]["resources"]
    group["flavors"] = [{"name": name, "resources": resources} for name in order]
    return made


def a_plane(clusters: dict[str, dict[str, Any]], *order: str) -> Plane:
    plane = Plane()
    put = [("Cluster", name, {"spec": spec}) for name, spec in clusters.items()]
    put += [("ResourceFlavor", name, flavor(name)) for name in (SPOT, ON_DEMAND)]
    put += [("ClusterQueue", "a", two_flavors(*(order or (SPOT,))))]
    gone = () if CLUSTER in clusters else (("Cluster", CLUSTER),)
    assert plane.catalog.edit(CatalogEdit(1, tuple(put), gone, roots=(ROOT,)))
    for name in clusters:
        beat(plane.nodes, name, plane.clock.now())
    return plane


def machine(price: float, pool: str = SPOT, **fields: Any) -> dict[str, Any]:
    return {
        "nodepool": pool,
        "capacity_type": pool,
        "price": price,
        "allocatable": {"cpu": "4", "memory": "16Gi"},
        **fields,
    }


def inventory(plane: Plane, cluster: str, *machines: dict[str, Any]) -> None:
    now = plane.clock.now()
    rows = [
        InventoryRow(**{"instance": f"i-{n}", "seen_at": now, **row})
        for n, row in enumerate(machines)
    ]
    plane.nodes.put_many(cluster, rows)


def placed(plane: Plane, workload: Workload | None = None) -> Workload:
    plane.put(workload or a_workload())
    plane.admit()(ROOT)
    return plane.record()


def why(plane: Plane, workload_id: str = "w1") -> tuple[str, str]:
    refusals = json.loads(zlib.decompress(plane.ledgers.newest_pass(ROOT)["refusals"]))
    code, message, _ = refusals[workload_id]
    return code, message


def test_the_cheaper_cluster_gets_the_work_and_the_record_says_why() -> None:
    plane = a_plane({"a": {}, "b": {}})
    inventory(plane, "a", machine(0.20))
    inventory(plane, "b", machine(0.12))

    record = placed(plane)

    assert record.cluster == "b"
    assert record.placed == "b: possible at $0.0300 an hour; a: possible at $0.0500 an hour"


def test_a_price_that_nobody_knows_here_counts_as_the_highest_known_elsewhere() -> None:
    plane = a_plane({"a": {}, "b": {}})
    inventory(plane, "b", machine(0.12))

    assert placed(plane).cluster == "a", "equal price: nothing runs there yet"


def test_a_stated_price_counts_before_observed_ones() -> None:
    plane = a_plane({"a": {}})
    stated = flavor(SPOT, **{"sluice.dev/usd-per-cpu-hour": "0.5"})
    put = (("ResourceFlavor", SPOT, stated),)
    assert plane.catalog.edit(CatalogEdit(2, put, roots=(ROOT,)))
    inventory(plane, "a", machine(0.12))

    assert placed(plane).placed == "a: possible at $0.5000 an hour"


def test_a_price_is_the_share_of_the_resource_that_is_asked_most_of() -> None:
    rate = {"cpu": (1_000_000, 4000), "memory": (1_000_000, 16), "nvidia.com/gpu": (1_000_000, 1)}

    assert cost({"cpu": 1000, "memory": 8}, rate) == 500_000
    assert cost({"cpu": 1}, rate) == 250
    assert cost({"pods": 1}, rate) is None


def test_work_goes_where_its_data_is_even_if_that_costs_more() -> None:
    plane = a_plane({"a": {"region": "eu-west-1"}, "b": {"buckets": ["data"]}})
    inventory(plane, "a", machine(0.12))
    inventory(plane, "b", machine(0.20))
    volumes = [{"name": "in", "bucket": "data", "prefix": "", "mount_path": "/in"}]

    record = placed(plane, a_workload(options={"volumes": volumes}))

    assert record.cluster == "b"
    assert record.placed.startswith("b: possible at $0.0500 an hour, near its data; a:")


def test_a_checkpoint_draws_more_than_data() -> None:
    plane = a_plane({"a": {"buckets": ["data"]}, "b": {"buckets": ["kept"]}})
    volumes = [{"name": "in", "bucket": "data", "prefix": "", "mount_path": "/in"}]
    workload = a_workload(options={"volumes": volumes}, restore_from="s3://kept/w1/3")

    assert placed(plane, workload).cluster == "b"


def test_equal_clusters_fill_evenly_within_one_pass() -> None:
    plane = a_plane({"a": {}, "b": {}})
    for number in range(4):
        plane.put(a_workload(f"w{number}", created_at=number))

    plane.admit()(ROOT)

    assert [plane.record(f"w{n}").cluster for n in range(4)] == ["a", "b", "a", "b"]


def test_a_cluster_that_was_not_heard_of_gets_no_new_work() -> None:
    plane = a_plane({"a": {}})
    plane.put(a_workload())
    plane.clock.pass_ms(SILENT_MS + 1)

    plane.admit()(ROOT)

    assert plane.record().state is State.PENDING
    assert why(plane) == ("PLATFORM:ClusterUnreachable", "a: its API server does not answer")
    assert plane.ledgers.read(ROOT).usage == {}

    beat(plane.nodes, "a", plane.clock.now())
    plane.admit()(ROOT)

    assert plane.record().cluster == "a"


def test_of_two_clusters_the_one_that_answers_gets_the_work() -> None:
    plane = a_plane({"a": {}, "b": {}})
    plane.clock.pass_ms(SILENT_MS + 1)
    beat(plane.nodes, "b", plane.clock.now())

    record = placed(plane)

    assert record.cluster == "b"
    assert record.placed.endswith("a: its API server does not answer")


def test_a_cordoned_cluster_says_so() -> None:
    plane = a_plane({"a": {"cordoned": True}, "b": {"flavors": [ON_DEMAND]}})
    placed(plane)

    assert why(plane) == ("HELD:ClusterCordoned", "a: is cordoned; b: does not offer spot")


def test_a_flavor_that_no_cluster_takes_is_left_for_the_next_one() -> None:
    plane = a_plane({"a": {"cordoned": True}, "b": {"flavors": [ON_DEMAND]}}, SPOT, ON_DEMAND)

    record = placed(plane)

    assert (record.cluster, used(record)) == ("b", {ON_DEMAND})


def test_what_no_cluster_takes_clears_nobody_off_and_keeps_no_room() -> None:
    plane = a_plane({"a": {}, "b": {}}, SPOT)
    made = queue("a", 1, preemption={"withinClusterQueue": "LowerPriority"})
    assert plane.catalog.edit(CatalogEdit(2, (("ClusterQueue", "a", made),), roots=(ROOT,)))
    nowhere = {"flavor": SPOT, "clusters": ["elsewhere"]}
    plane.put(a_workload("high", options={"placement": [nowhere]}, priority=9))
    plane.put(a_workload("low"))
    plane.admit()(ROOT)

    plane.clock.pass_ms(60_001)
    plane.admit()(ROOT)

    assert plane.record("low").state is State.ADMITTED
    assert asked(plane, "high") == (
        "MISCONFIGURATION:NoMatchingFlavor",
        "a: the workload does not allow it; b: the workload does not allow it",
    )


def wishes(*entries: dict[str, Any]) -> Workload:
    return a_workload(options={"placement": list(entries)})


def used(workload: Workload) -> set[str]:
    assert workload.reservation is not None
    return {f for each in workload.reservation.pod_sets for f in each.flavors.values()}


def test_flavors_are_tried_in_the_order_of_the_workload_not_of_the_queue() -> None:
    plane = a_plane({"a": {}}, SPOT, ON_DEMAND)

    assert used(placed(plane, wishes({"flavor": ON_DEMAND}, {"flavor": SPOT}))) == {ON_DEMAND}


def test_a_flavor_after_some_time_is_not_tried_before() -> None:
    plane = a_plane({"a": {}}, ON_DEMAND)
    later = {"flavor": ON_DEMAND, "after_pending_seconds": 600}

    assert placed(plane, wishes({"flavor": SPOT}, later)).state is State.PENDING

    plane.clock.pass_ms(600_000)
    beat(plane.nodes, "a", plane.clock.now())
    plane.admit()(ROOT)
    assert used(plane.record()) == {ON_DEMAND}


def test_an_entry_names_the_clusters_for_its_flavor_best_first() -> None:
    plane = a_plane({"a": {}, "b": {}, "c": {}}, SPOT)

    record = placed(plane, wishes({"flavor": SPOT, "clusters": ["c", "b"]}))

    assert record.cluster == "c"
    assert "a: the workload does not allow it" in record.placed


@pytest.mark.parametrize("capacity", [SPOT, ON_DEMAND])
def test_capacity_keeps_to_flavors_of_its_kind(capacity: str) -> None:
    plane = a_plane({"a": {}}, SPOT, ON_DEMAND)

    assert used(placed(plane, a_workload(options={"capacity": capacity}))) == {capacity}


def test_prices_are_stated_in_annotations() -> None:
    annotations = {"sluice.dev/usd-per-cpu-hour": "0.0425", "sluice.dev/usd-per-gpu-hour": "2"}
    (parsed,) = parse_objects([flavor(SPOT, **annotations)]).resource_flavors

    assert parsed.rates == {"cpu": (42_500, 1000), "nvidia.com/gpu": (2_000_000, 1)}
    with pytest.raises(DocumentError, match="is not a price in dollars"):
        parse_objects([flavor(SPOT, **{"sluice.dev/usd-per-cpu-hour": "cheap"})])


def selecting(**labels: str) -> Plane:
    plane = a_plane({"a": {}})
    made = queue("a", 4, namespaceSelector={"matchLabels": labels})
    tenant = {
        "metadata": {"name": "blue", "labels": {"team": "nlp"}},
        "spec": {"namespaces": ["team"]},
    }
    put = (("ClusterQueue", "a", made), ("Tenant", "blue", tenant))
    assert plane.catalog.edit(CatalogEdit(2, put, roots=(ROOT,)))
    return plane


@pytest.mark.parametrize("labels", [{"team": "nlp"}, {"kubernetes.io/metadata.name": "team"}])
def test_a_queue_admits_namespaces_by_their_name_and_their_tenants_labels(
    labels: dict[str, str],
) -> None:
    assert placed(selecting(**labels)).state is State.ADMITTED


def test_a_namespace_that_the_queue_does_not_select_waits_with_its_reason() -> None:
    plane = selecting(team="vision")

    assert placed(plane).state is State.PENDING
    assert asked(plane, "w1") == (
        "MISCONFIGURATION:NamespaceNotSelected",
        "ClusterQueue a selects namespaces with team=vision; team has not",
    )


def asked(plane: Plane, workload_id: str) -> tuple[str, str]:
    """What the core answers at this moment, as the api asks it."""
    snapshot = plane.catalog.snapshot()
    config, ledger = configured(snapshot), plane.ledgers.read(ROOT)
    gathered = plane.admit().gather(ROOT, ledger, snapshot, config)
    cycle = decide(config.queues, gathered, config.policies.of(ROOT), of_all=True)
    refusal = cycle.refusals[workload_id]
    return refusal.reason, refusal.message
