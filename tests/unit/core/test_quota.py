"""The quota tree's arithmetic, against worked examples and against its own definition."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import ResourceFlavor
from sluice.core.scheduling.quota import QuotaTree

from tests.unit.core.builders import (
    a_cohort,
    a_queue,
    a_scheduler,
    a_workload,
    cores,
    group,
    quota,
    running,
)


def test_limits_shape_what_is_available_and_what_is_possible() -> None:
    scheduler = a_scheduler(
        a_cohort("cohort", nominal=quota(10)),
        a_queue("cq1", 10, cohort="cohort"),
        a_queue("cq2", 10, 2, cohort="cohort"),
        a_queue("cq3", 10, None, 5, cohort="cohort"),
    )
    for name, used in (("cq1", 20), ("cq2", 10), ("cq3", 6)):
        scheduler.hold(running(a_workload(name, name, used)))

    assert [cores(scheduler.available(n)) for n in ("cq1", "cq2", "cq3")] == [4, 2, 4]
    assert [cores(scheduler.potential(n)) for n in ("cq1", "cq2", "cq3")] == [35, 12, 40]


def test_a_lending_limit_of_a_cohort_hides_quota_from_its_siblings() -> None:
    scheduler = a_scheduler(
        a_cohort("root"),
        a_cohort("left", "root", quota(0, None, 5)),
        a_cohort("right", "root", quota(0)),
        a_queue("left-cq1", 10, None, 5, cohort="left"),
        a_queue("left-cq2", 10, cohort="left"),
        a_queue("right-cq", 0, cohort="right"),
        a_queue("root-cq", 0, cohort="root"),
    )
    expected = {"left-cq1": 20, "left-cq2": 15, "right-cq": 5, "root-cq": 5}

    assert {name: cores(scheduler.available(name)) for name in expected} == expected
    assert {name: cores(scheduler.potential(name)) for name in expected} == expected


def test_after_a_quota_cut_nothing_is_available_and_nobody_is_evicted() -> None:
    scheduler = a_scheduler(a_queue("a", 4, cohort="c"), a_queue("b", 0, cohort="c"))
    scheduler.hold(running(a_workload("big", "a", 9)))
    scheduler.enqueue(a_workload("small", "b", 1))

    plan = scheduler.run_pass(0)

    assert (plan.admissions, plan.preemptions) == ((), ())
    assert cores(scheduler.available("a")) == cores(scheduler.available("b")) == 0


def test_a_cohort_below_a_cohort_passes_on_what_it_may_borrow() -> None:
    scheduler = a_scheduler(
        a_cohort("root", nominal=quota(100)),
        a_cohort("team", "root", quota(0, 30)),
        a_queue("a", 10, cohort="team"),
        a_queue("b", 0, 15, cohort="team"),
    )

    assert cores(scheduler.potential("a")) == 40
    assert cores(scheduler.potential("b")) == 15


def test_a_queue_without_a_cohort_has_its_nominal_quota_only() -> None:
    scheduler = a_scheduler(a_queue("alone", 7))

    assert cores(scheduler.available("alone")) == cores(scheduler.potential("alone")) == 7
    with pytest.raises(KeyError):
        scheduler.available("other")


@dataclass
class Node:
    """The definition of the tree, written down as it stands in Kueue's documentation."""

    nominal: int
    borrowing: int | None
    lending: int | None
    parent: int | None
    children: list[int]
    own_usage: int = 0


class ByDefinition:
    """Evaluates the recursive definitions without any bookkeeping."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def subtree(self, n: int) -> int:
        below = sum(self.subtree(c) - self.local(c) for c in self.nodes[n].children)
        return self.nodes[n].nominal + below

    def local(self, n: int) -> int:
        lending = self.nodes[n].lending
        return 0 if lending is None else max(0, self.subtree(n) - lending)

    def usage(self, n: int) -> int:
        if not self.nodes[n].children:
            return self.nodes[n].own_usage
        return sum(max(0, self.usage(c) - self.local(c)) for c in self.nodes[n].children)

    def available(self, n: int) -> int:
        parent = self.nodes[n].parent
        if parent is None:
            return self.subtree(n) - self.usage(n)
        local, usage = self.local(n), self.usage(n)
        above = self.available(parent)
        borrowing = self.nodes[n].borrowing
        if borrowing is not None:
            stored = self.subtree(n) - local - max(0, usage - local)
            above = min(above, stored + borrowing)
        return max(0, local - usage) + above

    def potential(self, n: int) -> int:
        parent = self.nodes[n].parent
        if parent is None:
            return self.subtree(n)
        most = self.local(n) + self.potential(parent)
        borrowing = self.nodes[n].borrowing
        return most if borrowing is None else min(most, self.subtree(n) + borrowing)


LIMIT = st.none() | st.integers(0, 12)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Node], QuotaTree, dict[int, int]]:
    """Random cohorts and queues; also the index of each definition node in the tree."""
    cohorts = draw(st.integers(1, 4))
    nodes: list[Node] = []
    for n in range(cohorts):
        parent = draw(st.integers(0, n - 1)) if n else None
        limits = (draw(LIMIT), draw(LIMIT)) if n else (None, None)
        nodes.append(Node(draw(st.integers(0, 12)), *limits, parent, []))
    for n in range(cohorts):  # every cohort has a queue, so that leaves are queues
        queues = draw(st.lists(st.tuples(st.integers(0, 12), LIMIT, LIMIT), min_size=1, max_size=2))
        nodes.extend(Node(*quotas, n, []) for quotas in queues)
    for n, node in enumerate(nodes):
        if node.parent is not None:
            nodes[node.parent].children.append(n)
    groups = [group(default=quota(each.nominal, each.borrowing, each.lending)) for each in nodes]
    catalog = QueueCatalog(
        flavors=[ResourceFlavor("default")],
        cohorts=[
            a_cohort(
                f"n{n}",
                None if nodes[n].parent is None else f"n{nodes[n].parent}",
                quota(nodes[n].nominal, nodes[n].borrowing, nodes[n].lending),
            )
            for n in range(cohorts)
        ],
        cluster_queues=[
            a_queue(f"n{n}", cohort=f"n{nodes[n].parent}", resource_groups=(groups[n],))
            for n in range(cohorts, len(nodes))
        ],
    )
    tree = QuotaTree(catalog, "n0")
    return nodes, tree, {n: tree.index[f"n{n}"] for n in range(len(nodes))}


@given(trees(), st.data())
def test_incremental_usage_always_equals_the_definition(
    built: tuple[list[Node], QuotaTree, dict[int, int]], data: st.DataObject
) -> None:
    nodes, tree, index = built
    queues = [n for n, node in enumerate(nodes) if not node.children]
    held: list[tuple[int, int]] = []
    for returns in data.draw(st.lists(st.booleans(), max_size=12)):
        if held and returns:
            queue, amount = held.pop(data.draw(st.integers(0, len(held) - 1)))
            tree.remove(index[queue], ((0, amount * 1000),))
            nodes[queue].own_usage -= amount
        else:
            queue, amount = data.draw(st.sampled_from(queues)), data.draw(st.integers(0, 20))
            tree.add(index[queue], ((0, amount * 1000),))
            nodes[queue].own_usage += amount
            held.append((queue, amount))

        definition = ByDefinition(nodes)
        for n, at in index.items():
            assert tree.usage[0][at] == 1000 * definition.usage(n)
            assert tree.available(at, 0) == 1000 * definition.available(n)
            assert tree.potential[0][at] == 1000 * definition.potential(n)


@given(trees(), st.data())
def test_admissions_that_fit_never_exceed_any_limit(
    built: tuple[list[Node], QuotaTree, dict[int, int]], data: st.DataObject
) -> None:
    nodes, tree, index = built
    queues = [n for n, node in enumerate(nodes) if not node.children]
    for _ in range(data.draw(st.integers(1, 12))):
        queue, amount = data.draw(st.sampled_from(queues)), data.draw(st.integers(1, 20))
        cells = ((0, amount * 1000),)
        if tree.fits(index[queue], cells):
            tree.add(index[queue], cells)
            nodes[queue].own_usage += amount

    definition = ByDefinition(nodes)
    for n, node in enumerate(nodes):
        usage, subtree = definition.usage(n), definition.subtree(n)
        if node.parent is None:
            assert usage <= subtree
        elif node.borrowing is not None:
            assert usage <= subtree + node.borrowing
