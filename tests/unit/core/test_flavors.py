"""Which flavor a workload gets: labels, taints, order, fungibility, and fewer pods."""

from __future__ import annotations

import pytest
from sluice.core.config.model import (
    FlavorFungibility,
    FlavorQuotas,
    FungibilityChoice,
    FungibilityPreference,
    LabelRequirement,
    PodSetInfo,
    Preemption,
    ReclaimWithinCohort,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Taint,
    TaintEffect,
    Toleration,
)
from sluice.core.scheduling.flavor_assigner import required_checks
from sluice.core.scheduling.request_shape import mismatch
from sluice.core.values.reasons import Reason

from tests.unit.core.builders import (
    LOWER,
    NOW_MS,
    WITHIN_LOWER,
    a_queue,
    a_scheduler,
    a_workload,
    admitted,
    group,
    preempted,
    quota,
    running,
)

STOP, NEXT = FungibilityChoice.MAY_STOP_SEARCH, FungibilityChoice.TRY_NEXT_FLAVOR
LEVEL_FIRST = FungibilityPreference.PREEMPTION_OVER_BORROWING

SPOT = ResourceFlavor(
    "spot",
    node_labels={"capacity": "spot", "zone": "a"},
    node_taints=(
        Taint("spot", TaintEffect.NO_SCHEDULE, "true"),
        Taint("soft", TaintEffect.PREFER_NO_SCHEDULE),
    ),
)
TOLERATES = (Toleration("spot", "Equal", "true", TaintEffect.NO_SCHEDULE),)


def pods(**fields: object) -> PodSetInfo:
    fields.setdefault("tolerations", TOLERATES)
    return PodSetInfo("main", 1, {"cpu": 1000}, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pod_set",
    [
        pods(),
        pods(tolerations=(Toleration(operator="Exists"),)),
        pods(tolerations=(Toleration("spot", "Exists"),)),
        pods(node_selector={"capacity": "spot"}),
        pods(node_selector={"unrelated": "x"}),
        pods(affinity=((LabelRequirement("zone", "In", ("a", "b")),),)),
        pods(
            affinity=((LabelRequirement("zone", "In", ("b",)),), (LabelRequirement("x", "Exists"),))
        ),
        pods(affinity=((LabelRequirement("zone", "NotIn", ("b",)),),)),
        pods(flavors=("other", "spot")),
    ],
)
def test_pods_match_a_flavor_by_its_own_labels_and_taints(pod_set: PodSetInfo) -> None:
    assert mismatch(pod_set, SPOT, "spot") is None


@pytest.mark.parametrize(
    "pod_set",
    [
        pods(tolerations=()),
        pods(tolerations=(Toleration("spot", "Equal", "false"),)),
        pods(tolerations=(Toleration("spot", "Exists", effect=TaintEffect.NO_EXECUTE),)),
        pods(node_selector={"capacity": "on-demand"}),
        pods(affinity=((LabelRequirement("zone", "In", ("b",)),),)),
        pods(affinity=((LabelRequirement("zone", "DoesNotExist"),),)),
        pods(affinity=((LabelRequirement("zone", "Gt", ("1",)),),)),
        pods(flavors=("on-demand",)),
    ],
)
def test_pods_that_contradict_a_flavor_do_not_get_it(pod_set: PodSetInfo) -> None:
    assert mismatch(pod_set, SPOT, "spot")


def test_a_flavor_brings_tolerations_of_its_own() -> None:
    flavor = ResourceFlavor("spot", node_taints=SPOT.node_taints, tolerations=TOLERATES)

    assert mismatch(pods(tolerations=()), flavor, "spot") is None


def test_without_any_matching_flavor_the_reason_says_so() -> None:
    scheduler = a_scheduler(SPOT, a_queue("q", resource_groups=(group(spot=quota(9)),)), root="q")
    scheduler.enqueue(a_workload("w", "q"))

    assert admitted(scheduler) == []
    refusal = scheduler.why("w")
    assert refusal.reason is Reason.NO_MATCHING_FLAVOR
    assert "untolerated taint spot=true:NoSchedule" in refusal.message


def chosen(scheduler: object) -> dict[str, str]:
    plan = scheduler.run_pass(NOW_MS)  # type: ignore[attr-defined]
    return {
        each.workload: flavor
        for each in plan.admissions
        for assigned in each.assignment.pod_sets
        for flavor in assigned.flavors.values()
    }


def test_flavors_are_tried_in_their_order() -> None:
    scheduler = a_scheduler(a_queue("q", resource_groups=(group(one=quota(2), two=quota(9)),)))
    for number in range(3):
        scheduler.enqueue(a_workload(f"w{number}", "q", queued=number))

    assert chosen(scheduler) == {"w0": "one", "w1": "one", "w2": "two"}


@pytest.mark.parametrize(("when_can_borrow", "expected"), [(STOP, "one"), (NEXT, "two")])
def test_a_flavor_that_needs_borrowing_ends_the_search_or_not(
    when_can_borrow: FungibilityChoice, expected: str
) -> None:
    rules = FlavorFungibility(when_can_borrow=when_can_borrow)
    groups = (group(one=quota(0), two=quota(4)),)
    scheduler = a_scheduler(
        a_queue("q", cohort="c", resource_groups=groups, flavor_fungibility=rules),
        a_queue("lender", cohort="c", resource_groups=(group(one=quota(4)),)),
    )
    scheduler.enqueue(a_workload("w", "q", 2))

    assert chosen(scheduler) == {"w": expected}


@pytest.mark.parametrize(
    ("when_can_preempt", "admitted_to", "evicted"),
    [(NEXT, {"w": "two"}, {}), (STOP, {}, {"low": "InClusterQueue"})],
)
def test_a_flavor_that_needs_preemption_ends_the_search_or_not(
    when_can_preempt: FungibilityChoice, admitted_to: dict[str, str], evicted: dict[str, str]
) -> None:
    rules = FlavorFungibility(when_can_preempt=when_can_preempt)
    queue = a_queue(
        "q",
        resource_groups=(group(one=quota(2), two=quota(4)),),
        flavor_fungibility=rules,
        preemption=WITHIN_LOWER,
    )
    for look, expected in ((chosen, admitted_to), (preempted, evicted)):
        scheduler = a_scheduler(queue)
        scheduler.hold(running(a_workload("low", "q", 2), flavor="one"))
        scheduler.enqueue(a_workload("w", "q", 2, priority=1))

        assert look(scheduler) == expected


@pytest.mark.parametrize(
    ("preference", "admitted_to", "evicted"),
    [
        (FungibilityPreference.BORROWING_OVER_PREEMPTION, {"w": "two"}, {}),
        (LEVEL_FIRST, {}, {"low": "InClusterQueue"}),
    ],
)
def test_the_preference_weighs_borrowing_against_preemption(
    preference: FungibilityPreference, admitted_to: dict[str, str], evicted: dict[str, str]
) -> None:
    queue = a_queue(
        "q",
        cohort="c",
        resource_groups=(group(one=quota(2), two=quota(0)),),
        flavor_fungibility=FlavorFungibility(NEXT, NEXT, preference),
        preemption=WITHIN_LOWER,
    )
    lender = a_queue("lender", cohort="c", resource_groups=(group(two=quota(4)),))
    for look, expected in ((chosen, admitted_to), (preempted, evicted)):
        scheduler = a_scheduler(queue, lender)
        scheduler.hold(running(a_workload("low", "q", 2), flavor="one"))
        scheduler.enqueue(a_workload("w", "q", 2, priority=1))

        assert look(scheduler) == expected


def test_reclaiming_is_preferred_to_evicting_from_the_own_queue() -> None:
    queue = a_queue(
        "q",
        cohort="c",
        resource_groups=(group(one=quota(2), two=quota(2)),),
        flavor_fungibility=FlavorFungibility(when_can_preempt=NEXT),
        preemption=Preemption(LOWER, ReclaimWithinCohort.ANY),
    )
    borrower = a_queue("borrower", cohort="c", resource_groups=(group(two=quota(0)),))
    scheduler = a_scheduler(queue, borrower)
    scheduler.hold(running(a_workload("own-low", "q", 2), flavor="one"))
    scheduler.hold(running(a_workload("foreign", "borrower", 2), flavor="two"))
    scheduler.enqueue(a_workload("w", "q", 2, priority=1))

    assert preempted(scheduler) == {"foreign": "InCohortReclamation"}


def test_resources_of_a_group_share_a_flavor_and_groups_choose_apart() -> None:
    def quotas(name: str, **amounts: int) -> FlavorQuotas:
        return FlavorQuotas(name, {r: ResourceQuota(amount) for r, amount in amounts.items()})

    groups = (
        ResourceGroup(
            ("cpu", "memory"),
            (quotas("small", cpu=8000, memory=10), quotas("large", cpu=8000, memory=100)),
        ),
        ResourceGroup(("gpu",), (quotas("t4", gpu=0), quotas("a100", gpu=4))),
    )
    scheduler = a_scheduler(a_queue("q", resource_groups=groups))
    pod_set = PodSetInfo("main", 2, {"cpu": 1000, "memory": 20, "gpu": 1})
    scheduler.enqueue(a_workload("w", "q", pod_sets=(pod_set,)))

    (admission,) = scheduler.run_pass(NOW_MS).admissions

    flavors = {"cpu": "large", "memory": "large", "gpu": "a100"}
    assert admission.assignment.pod_sets[0].flavors == flavors


def test_pod_sets_of_one_workload_count_together() -> None:
    groups = (group(one=quota(3), two=quota(3)),)
    scheduler = a_scheduler(a_queue("q", resource_groups=groups))
    both = tuple(PodSetInfo(name, 1, {"cpu": 2000}) for name in ("driver", "worker"))
    scheduler.enqueue(a_workload("w", "q", pod_sets=both))

    (admission,) = scheduler.run_pass(NOW_MS).admissions

    assert [each.flavors["cpu"] for each in admission.assignment.pod_sets] == ["one", "two"]


def test_pods_are_a_resource_where_the_queue_covers_them() -> None:
    quotas = {"cpu": ResourceQuota(9000), "pods": ResourceQuota(3)}
    groups = (ResourceGroup(("cpu", "pods"), (FlavorQuotas("default", quotas),)),)
    scheduler = a_scheduler(a_queue("q", resource_groups=groups))
    scheduler.enqueue(a_workload("fits", "q", count=3, queued=1))
    scheduler.enqueue(a_workload("waits", "q", count=1, queued=2))

    assert admitted(scheduler) == ["fits"]
    assert scheduler.usage("q")["default", "pods"] == 3


def test_a_check_limited_to_flavors_concerns_only_those_who_use_one() -> None:
    queue = a_queue("q", admission_checks={"capacity": ("spot",), "approval": ()})
    for flavor, expected in (("spot", ("approval", "capacity")), ("on-demand", ("approval",))):
        holding = running(a_workload("w", "q"), flavor=flavor)

        assert required_checks(queue, holding.assignment) == expected


@pytest.mark.parametrize(
    ("room", "counts"),
    [(20, (5, 5, 5, 5)), (15, (4, 5, 3, 3)), (10, (3, 4, 1, 2)), (9, ())],
)
def test_slack_is_given_up_in_proportion(room: int, counts: tuple[int, ...]) -> None:
    scheduler = a_scheduler(a_queue("q", room))
    sets = tuple(
        PodSetInfo(f"s{n}", 5, {"cpu": 1000}, least) for n, least in enumerate((3, 4, 1, 2))
    )
    scheduler.enqueue(a_workload("in", "q", pod_sets=sets))

    admissions = scheduler.run_pass(NOW_MS).admissions

    assert tuple(s.count for each in admissions for s in each.assignment.pod_sets) == counts
