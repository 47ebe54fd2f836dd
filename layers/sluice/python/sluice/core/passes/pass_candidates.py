"""Which of many waiting workloads a pass looks at, where the first in line are not enough."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from sluice.core.config.model import ClusterQueue
from sluice.core.config.policy import Policy
from sluice.core.lifecycle.indexes import Place


def reorders_queue(queue: ClusterQueue, policy: Policy) -> bool:
    """Whether somebody may go first who stands far behind by priority and time."""
    return policy.aging is not None or _by_usage(queue, policy)


def choose_candidates(
    places: Sequence[Place], heads: int, queue: ClusterQueue, policy: Policy
) -> list[Place]:
    """Whom to look at: the first `heads`, and as many again from the fronts of the groups.

    Groups are LocalQueues where past usage orders them, and priorities where waiting counts as
    priority: within one group the first in line goes first whatever the policy says.
    """
    groups: dict[Hashable, list[Place]] = {}
    for place in places:
        local = place.queue if _by_usage(queue, policy) else ""
        priority = place.priority if policy.aging is not None else 0
        groups.setdefault((local, priority), []).append(place)
    each = max(1, heads // max(1, len(groups)))
    fronts = [place for group in groups.values() for place in group[:each]]
    return list(dict.fromkeys([*places[:heads], *fronts]))


def _by_usage(queue: ClusterQueue, policy: Policy) -> bool:
    return policy.admission_fair_sharing is not None and queue.usage_based_admission
