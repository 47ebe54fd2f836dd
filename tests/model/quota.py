"""Quota trees of the model, counted twice: as the planner asks and as the auditor checks."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Node(NamedTuple):
    """A ClusterQueue or a cohort; limits are in units, None means no limit."""

    parent: int | None
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


Tree = tuple[Node, ...]
Used = tuple[int, ...]  # units per node; only ClusterQueues hold any


@cache
def available(tree: Tree, used: Used, node: int) -> int:
    """Units that a node may still take, top down, as Kueue defines it; negative when in debt."""
    kept, quota, usage = _kept(tree, node), _subtree_quota(tree, node), _usage(tree, used, node)
    parent, borrowing_limit = tree[node].parent, tree[node].borrowing_limit
    if parent is None:
        return quota - usage
    from_parent = available(tree, used, parent)
    if borrowing_limit is not None:
        from_parent = min(from_parent, quota - kept - max(0, usage - kept) + borrowing_limit)
    return max(0, kept - usage) + from_parent


@cache
def overdrawn(tree: Tree, used: Used) -> str | None:
    """Names the first node whose holdings break I2, bottom up, or None.

    Walks what every node asks of its parent, and so shares no formula with `available`.
    """
    offered = [node.nominal for node in tree]
    asked = list(used)
    for index in reversed(range(len(tree))):  # parents stand before their children
        parent, _, borrowing_limit, lending_limit = tree[index]
        quota, usage = offered[index], asked[index]
        if parent is None:
            if usage > quota:
                return f"node {index} uses {usage} of {quota}"
            continue
        lent = quota if lending_limit is None else min(quota, lending_limit)
        demand = max(0, usage - (quota - lent))
        if borrowing_limit is not None and demand > lent + borrowing_limit:
            return f"node {index} uses {usage}, above {quota} and what it may borrow"
        offered[parent] += lent
        asked[parent] += demand
    return None


def without_lending_limits(tree: Tree) -> Tree:
    return tuple(node._replace(lending_limit=None) for node in tree)


def without_ancestors(tree: Tree) -> Tree:
    """Each queue trusts its own nominal and borrowing limit and looks at nobody else."""
    room = sum(node.nominal for node in tree)
    return tuple(
        node._replace(
            parent=None,
            nominal=node.nominal + (room if node.borrowing_limit is None else node.borrowing_limit),
        )
        for node in tree
    )


@cache
def _subtree_quota(tree: Tree, node: int) -> int:
    children = [index for index, child in enumerate(tree) if child.parent == node]
    return tree[node].nominal + sum(_subtree_quota(tree, c) - _kept(tree, c) for c in children)


@cache
def _kept(tree: Tree, node: int) -> int:
    limit = tree[node].lending_limit
    return 0 if limit is None else max(0, _subtree_quota(tree, node) - limit)


def _usage(tree: Tree, used: Used, node: int) -> int:
    children = [index for index, child in enumerate(tree) if child.parent == node]
    return used[node] + sum(max(0, _usage(tree, used, c) - _kept(tree, c)) for c in children)
