"""The sparse index attributes of a record: where it can be found while it is in which state."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.lifecycle.record import ON_CLUSTER, State, Workload, awaits_release
from sluice.core.lifecycle.runs import ordering_time


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload waits, as the `inbox` index tells it without a look at the record.

    `since` is its ordering time. `shape_hash` is empty for those whose record has to be read.
    """

    id: str
    priority: int
    queue: str
    since: int = 0
    shape_hash: str = ""

    @property
    def order(self) -> str:
        """Where to go on behind it."""
        return f"{_PRIORITY_BIAS - self.priority:010d}#{self.since:013d}#{self.id}"


INDEXES = ("inbox", "inbox_order", "active", "active_order", "listed", "ran")


_PRIORITY_BIAS = 2**31


def pending_key(cq: str) -> str:
    """Hash key of the `inbox` index under which the workloads of a ClusterQueue wait."""
    return f"P#{cq}"


def blocked_key(namespace: str) -> str:
    """Hash key of the `inbox` index under which those wait that depend on others."""
    return f"D#{namespace}"


def release_key(root: str) -> str:
    """Hash key of the `inbox` index under which a root cohort's releases wait."""
    return f"R#{root}"


def checks_key(root: str) -> str:
    """Hash key of the `inbox` index under which those stand whose admission checks are pending."""
    return f"C#{root}"


def index_keys(workload: Workload) -> dict[str, str]:
    """The sparse index attributes that a record in this state carries."""
    since = ordering_time(workload)
    order = f"{_PRIORITY_BIAS - workload.priority:010d}#{since:013d}#{workload.id}"
    keys = {"listed": f"{workload.created_at:013d}#{workload.id}"} if workload.queue else {}
    if workload.state is State.PENDING and not workload.held:
        key = blocked_key(workload.namespace) if workload.blocked else pending_key(workload.cq)
        shape = f"#{workload.shape_hash}" if _is_new(workload) else ""
        keys |= {"inbox": key, "inbox_order": f"{order}#{workload.queue}{shape}"}
    elif workload.state is State.ADMITTED and workload.gated:
        keys |= {"inbox": checks_key(workload.root), "inbox_order": order}
    elif awaits_release(workload):
        keys |= {"inbox": release_key(workload.root), "inbox_order": order}
    if workload.state not in ON_CLUSTER and workload.runs:
        keys["ran"] = f"{workload.runs[-1].ended_at:013d}#{workload.id}"
    if workload.state in ON_CLUSTER and workload.cluster:
        active_order = f"{workload.root}#{workload.id}"
        keys |= {"active": workload.cluster, "active_order": active_order}
    return keys


def _is_new(workload: Workload) -> bool:
    """Whether it is still what was submitted, so that its shape tells all about it."""
    changed = workload.generation or workload.requeues or workload.not_before or workload.waits
    apart = workload.runs or workload.object is not None
    return bool(workload.shape_hash) and not (changed or apart)


def place_of(inbox_order: str) -> Place:
    """The place behind an order key of `pending_key`; older keys end with the id or the queue."""
    inverted, since, workload, *rest = inbox_order.split("#")
    queue, shape, *_ = (*rest, "", "")
    return Place(workload, _PRIORITY_BIAS - int(inverted), queue, int(since), shape)
