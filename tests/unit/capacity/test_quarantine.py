"""Bans: they double and expire, and no affinity term lets a barred offering through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.clusters.quarantine import (
    COOL_DOWNS_MS,
    FORGIVEN_AFTER_MS,
    Ban,
    Cause,
    Offering,
    avoiding,
    banned,
    cause_of,
    in_force,
    named,
)

from tests.unit.capacity.builders import NAMED, NOW

HERE = Offering("m5.large", "a", "spot")
CAUSES = st.sampled_from(list(Cause))


@given(cause=CAUSES, gaps=st.lists(st.integers(1, FORGIVEN_AFTER_MS - 1), max_size=12))
def test_each_further_strike_doubles_the_ban_up_to_the_longest(
    cause: Cause, gaps: list[int]
) -> None:
    first, longest = COOL_DOWNS_MS[cause]
    ban = banned(HERE, cause, NOW, None)
    expected = first

    for gap in gaps:
        assert ban.until - ban.at == min(expected, longest)
        assert in_force([ban], ban.until - 1) == [ban]
        assert in_force([ban], ban.until) == []
        ban, expected = banned(HERE, cause, ban.until + gap, ban), expected * 2

    assert ban.until - ban.at == min(expected, longest)
    assert ban.strikes == len(gaps) + 1


@given(cause=CAUSES, early=st.integers(0, 10**9))
def test_a_failure_within_a_ban_teaches_nothing(cause: Cause, early: int) -> None:
    ban = banned(HERE, cause, NOW, None)

    assert banned(HERE, cause, ban.until - early, ban) is ban


def test_old_sins_are_forgiven() -> None:
    ban = banned(HERE, Cause.LOST, NOW, None)
    again = banned(HERE, Cause.LOST, ban.until + FORGIVEN_AFTER_MS, ban)

    assert (again.strikes, again.until - again.at) == (1, ban.until - ban.at)


def test_a_whole_pool_is_tried_again_sooner_than_one_offering() -> None:
    one, pool = (banned(each, Cause.SOLD_OUT, NOW, None) for each in (HERE, Offering(pool="spot")))

    assert pool.until < one.until


KINDS = ("spot", "on-demand")
OFFERINGS = st.builds(
    Offering, st.sampled_from("xyz"), st.sampled_from("abc"), st.sampled_from(KINDS)
)


def admits(term: dict[str, Any], offering: Offering) -> bool:
    (expression,) = term["matchExpressions"]
    value = {
        "node.kubernetes.io/instance-type": offering.instance_type,
        "topology.kubernetes.io/zone": offering.zone,
        "karpenter.sh/capacity-type": offering.capacity_type,
    }[expression["key"]]
    return value not in expression["values"]


@given(
    barred=st.lists(OFFERINGS, min_size=1),
    offer=OFFERINGS,
    known=st.sets(st.sampled_from(KINDS)),
)
def test_no_term_admits_a_barred_offering(
    barred: list[Offering], offer: Offering, known: set[str]
) -> None:
    terms = avoiding([Ban(each, Cause.LOST, NOW, NOW + 1) for each in barred], NOW, known)
    relevant = {each for each in barred if not known or each.capacity_type in known}

    if offer in relevant:
        assert terms
        assert not any(admits(term, offer) for term in terms)
    elif len(relevant) == 1 and offer.capacity_type == next(iter(relevant)).capacity_type:
        assert any(admits(term, offer) for term in terms), "exact for one offering"
    if not relevant:
        assert terms == []


def test_a_pool_with_both_capacity_types_may_buy_the_other_as_a_last_resort() -> None:
    bans = [Ban(Offering("x", "a", "spot"), Cause.LOST, NOW, NOW + 1)]

    *_, last = avoiding(bans, NOW, {"spot", "on-demand"})

    assert admits(last, Offering("x", "a", "on-demand"))
    assert not admits(last, Offering("y", "b", "spot"))


def test_pools_and_bans_that_are_over_bar_no_offering() -> None:
    over = Ban(HERE, Cause.LOST, NOW - 1, NOW)
    pool = Ban(Offering(pool="spot"), Cause.SOLD_OUT, NOW, NOW + 1)

    assert avoiding([over, pool], NOW) == []


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (NAMED.format("c5.large", "us-east-1a"), Cause.SOLD_OUT),
        ("UnfulfillableCapacity: Unable to fulfill capacity", Cause.SOLD_OUT),
        ("There is no Spot capacity available that matches your request.", Cause.SOLD_OUT),
        ("VcpuLimitExceeded: You have requested more vCPU capacity", Cause.ACCOUNT_QUOTA),
        ("MaxSpotInstanceCountExceeded: Max spot instance count exceeded", Cause.ACCOUNT_QUOTA),
        ("VcpuLimitExceeded: …; InsufficientInstanceCapacity: …", Cause.ACCOUNT_QUOTA),
        ("creating fleet request, RequestLimitExceeded: Request limit exceeded.", Cause.THROTTLED),
        ("UnauthorizedOperation: You are not authorized", Cause.MISCONFIGURED),
        ("InvalidParameterValue: Invalid IAM Instance Profile", Cause.MISCONFIGURED),
    ],
)
def test_errors_of_ec2_are_told_apart(message: str, cause: Cause) -> None:
    assert cause_of(message) is cause
    assert str(cause.reason).startswith("CAPACITY:")


def test_messages_name_what_is_sold_out() -> None:
    text = "; ".join(
        NAMED.format(*each) for each in (("c5.large", "us-east-1b"), ("m5.xlarge", "a"))
    )

    assert named(text, "spot") == [
        Offering("c5.large", "us-east-1b", "spot"),
        Offering("m5.xlarge", "a", "spot"),
    ]
