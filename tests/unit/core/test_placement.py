"""Placement: refusals per cluster, and preference in a fixed order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.clusters.placement import (
    ClusterOffering,
    ClusterView,
    Health,
    PlacementRequest,
    place,
)
from sluice.core.values.reasons import Reason

SPOT = frozenset({"spot"})


def a_cluster(name: str, price: int = 0, **fields: object) -> ClusterView:
    fields.setdefault("offerings", {"spot": ClusterOffering(microusd_per_hour=price)})
    return ClusterView(name, **fields)  # type: ignore[arg-type]


def where(request: PlacementRequest, *clusters: ClusterView) -> str | None:
    return place(request, clusters, 0).cluster


def test_a_cluster_must_offer_every_flavor() -> None:
    request = PlacementRequest(frozenset({"spot", "gpu"}))
    both = {"spot": ClusterOffering(), "gpu": ClusterOffering()}

    assert where(request, a_cluster("a"), a_cluster("b", offerings=both)) == "b"


def test_each_refused_cluster_says_why_and_the_most_hopeful_reason_counts() -> None:
    clusters = [
        a_cluster("closed", health=Health.CORDONED),
        a_cluster("gone", health=Health.UNREACHABLE),
        a_cluster("other", offerings={}),
        a_cluster("sold-out", offerings={"spot": ClusterOffering(quarantined_until_ms=61_000)}),
    ]

    result = place(PlacementRequest(SPOT), clusters, 1_000)

    assert (result.cluster, result.reason) == (None, Reason.INSUFFICIENT_INSTANCE)
    assert result.why == {
        "closed": "is cordoned",
        "gone": "its API server does not answer",
        "other": "does not offer spot",
        "sold-out": "spot is sold out, tried again in 60 s",
    }
    assert place(PlacementRequest(SPOT), clusters, 61_000).cluster == "sold-out"
    assert place(PlacementRequest(SPOT), clusters[:1], 0).reason is Reason.CLUSTER_CORDONED
    assert place(PlacementRequest(SPOT), [], 0).reason is Reason.NO_MATCHING_FLAVOR


def test_preference_then_checkpoint_then_data_then_price_then_the_present_place() -> None:
    near = frozenset({"eu-1"})
    cheap, dear = a_cluster("cheap", 1), a_cluster("dear", 9, locations=near)

    assert where(PlacementRequest(SPOT), cheap, dear) == "cheap"
    assert where(PlacementRequest(SPOT, data=near), cheap, dear) == "dear"
    assert where(PlacementRequest(SPOT, checkpoint=near), cheap, dear) == "dear"
    assert where(PlacementRequest(SPOT, ("cheap", "dear"), near), cheap, dear) == "cheap"
    assert where(PlacementRequest(SPOT, ("dear",)), cheap, dear) == "dear"
    same = [a_cluster("x", 1), a_cluster("y", 1)]
    assert where(PlacementRequest(SPOT, current="y"), *same) == "y"
    assert where(PlacementRequest(SPOT), *same) == "x"


def test_a_checkpoint_weighs_more_than_data() -> None:
    here, there = frozenset({"here"}), frozenset({"there"})
    request = PlacementRequest(SPOT, checkpoint=there, data=here)

    clusters = [a_cluster("a", locations=here), a_cluster("b", locations=there)]

    assert where(request, *clusters) == "b"


def test_equal_clusters_fill_evenly() -> None:
    roomy = {"spot": ClusterOffering(free=10)}
    clusters = [a_cluster("a"), a_cluster("b", offerings=roomy, running=5)]
    busy = [a_cluster("a", running=2), a_cluster("b", running=1)]

    assert where(PlacementRequest(SPOT), *clusters) == "b"
    assert where(PlacementRequest(SPOT), *busy) == "b"


@given(
    st.permutations(
        [a_cluster(name, price) for name, price in zip("abcd", (3, 1, 1, 2), strict=True)]
    )
)
def test_the_order_of_listing_does_not_matter(clusters: list[ClusterView]) -> None:
    assert where(PlacementRequest(SPOT), *clusters) == "b"


def test_who_is_saved_by_cedana_goes_where_it_is() -> None:
    plain, equipped = a_cluster("a"), a_cluster("b", 9, services=frozenset({CheckpointMode.CEDANA}))

    assert where(PlacementRequest(SPOT, service=CheckpointMode.CEDANA), plain, equipped) == "b"
    refused = place(PlacementRequest(SPOT, service=CheckpointMode.CEDANA), [plain], 0)
    assert (refused.cluster, refused.reason) == (None, Reason.NO_MATCHING_FLAVOR)
    assert "no Cedana" in refused.why["a"]


def test_a_kind_goes_where_its_controller_is() -> None:
    plain, equipped = a_cluster("a"), a_cluster("b", 9, kinds=frozenset({"PyTorchJob"}))

    assert where(PlacementRequest(SPOT, kind="PyTorchJob"), plain, equipped) == "b"
    refused = place(PlacementRequest(SPOT, kind="PyTorchJob"), [plain], 0)
    assert (refused.cluster, refused.reason) == (None, Reason.NO_MATCHING_FLAVOR)
    assert refused.why["a"] == "runs no PyTorchJob (spec.kinds of the Cluster)"
