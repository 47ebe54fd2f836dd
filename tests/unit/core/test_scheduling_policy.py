"""The SchedulingPolicy document: Kueue's names, strict about everything else."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.document import DocumentError
from sluice.core.config.model import FairPreemptionStrategy
from sluice.core.config.policy import AdmissionFairSharing, Aging, FairSharing, Policy
from sluice.core.config.scheduling_policy import SchedulingPolicy, parse, policies, problems

from tests.unit.core.builders import a_queue


def document(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_an_empty_policy_is_kueues_default() -> None:
    assert parse(document()) == SchedulingPolicy("default", None, Policy())


def test_every_field_arrives() -> None:
    found = parse(
        document(
            rootCohort="company",
            fairSharing={"preemptionStrategies": ["LessThanInitialShare"]},
            admissionFairSharing={
                "usageHalfLifeTime": "12h",
                "usageSamplingInterval": "1m",
                "resourceWeights": {"cpu": 1, "nvidia.com/gpu": "40.5"},
            },
            resources={"quotaCheckStrategy": "IgnoreUndeclared"},
            aging={"interval": "10m", "reserveAfter": "2h"},
            minRuntime="5m",
            preferLeastLostWork=False,
        )
    )

    assert found.root_cohort == "company"
    assert found.policy == Policy(
        fair_sharing=FairSharing((FairPreemptionStrategy.LESS_THAN_INITIAL_SHARE,)),
        admission_fair_sharing=AdmissionFairSharing(
            12 * 3_600_000, 60_000, {"cpu": 1.0, "nvidia.com/gpu": 40.5}
        ),
        aging=Aging(600_000, 7_200_000),
        ignore_undeclared=True,
        min_run_ms=300_000,
        prefer_least_lost_work=False,
    )


@pytest.mark.parametrize(
    ("fair_sharing", "expected"), [({}, FairSharing()), ({"enable": False}, None), (None, None)]
)
def test_fair_sharing_is_on_where_it_is_written_unless_it_says_otherwise(
    fair_sharing: Any, expected: FairSharing | None
) -> None:
    assert parse(document(fairSharing=fair_sharing)).policy.fair_sharing == expected


@pytest.mark.parametrize(
    ("spec", "flaw"),
    [
        ({"fairShare": {}}, "spec.fairShare: unknown field; did you mean fairSharing?"),
        ({"fairSharing": {"preemptionStrategies": ["Any"]}}, "'Any' is not one of LessThanOr"),
        ({"admissionFairSharing": {}}, "admissionFairSharing.usageHalfLifeTime: is missing"),
        ({"aging": {"interval": "0s"}}, "spec.aging.interval: must be a time above 0"),
        ({"resources": {"quotaCheckStrategy": "No"}}, "'No' is not one of BlockUndeclared"),
        ({"minRuntime": "soon"}, "spec.minRuntime"),
    ],
)
def test_mistakes_are_named_with_what_to_do(spec: dict[str, Any], flaw: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(document(**spec))

    assert flaw in str(caught.value)


def test_a_root_follows_its_own_policy_and_the_rest_the_one_for_all() -> None:
    found = [
        parse(document("all", minRuntime="1m")),
        parse(document("own", rootCohort="red", minRuntime="2m")),
    ]

    assert policies(found).of("red").min_run_ms == 120_000
    assert policies(found).of("blue").min_run_ms == 60_000
    assert policies(()).of("blue") == Policy()


def test_a_policy_that_nobody_follows_is_a_problem() -> None:
    catalog = QueueCatalog(cluster_queues=[a_queue("red", cohort=None)])
    found = [
        parse(document("b", rootCohort="red")),
        parse(document("c", rootCohort="red")),
        parse(document("d", rootCohort="green")),
    ]

    twice, unknown = [f"{each.name}: {each.message}" for each in problems(found, catalog)]
    assert twice == "c: SchedulingPolicy b is for red already; change or delete it"
    assert unknown == "d: no root cohort is named green; known: red"
