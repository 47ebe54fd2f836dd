"""What an observer knows of one cluster: its objects, from where to watch them, what to read."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.judged_fields import judged_fields
from sluice.core.clusters.watchlist import Watchlist
from sluice.core.jobs.table import EVERYWHERE, KINDS
from sluice.core.lifecycle.job_status import WORKLOAD_LABEL
from sluice.core.migrations.pod_annotations import DONE, annotations_of
from sluice.errors import ClusterError
from sluice.ports import Cluster, Document
from sluice.usecases.running.cluster_events import SELECTOR

LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
NOT_FOUND = 404
NAMED = 50  # workloads in one selector: their ids have to fit an address


@dataclass
class ObservedCluster:
    """Kept from one run to the next by a process, for as long as its watches went on."""

    state: ClusterState = field(default_factory=ClusterState)
    versions: dict[str, str] = field(default_factory=dict)
    """Kind → the resource version from which to watch it."""
    door: Mapping[str, str] = field(default_factory=dict)
    """Kind → the resource version from which to watch what users create."""
    watchlist: Watchlist = field(default_factory=Watchlist)
    listed_at: int = 0
    """When all objects were listed (epoch ms)."""
    listed_active_at: int = 0
    counted_at: int = 0
    left_at: int = 0
    """When the run ended that kept it."""
    kinds: set[str] = field(default_factory=set)
    """Those of the records that were read."""
    complete: set[str] = field(default_factory=set)
    """Workloads of which the pods that had ended before the list are known, too."""
    answered: list[Document] = field(default_factory=list)
    """Listed pods with an answer of their node's agent."""


def list_cluster(
    cluster: Cluster, active: Container[str], recent: int, kinds: Collection[str] = EVERYWHERE
) -> ObservedCluster:
    """All our objects, by pages of which only the judged fields stay.

    Pods that have ended are left out: they count only where their Job has ended and its record does
    not say so, and are read then (`CompareRecords`). So are Jobs that ended before `recent` (epoch
    ms) and have no active record. `kinds` are those that the cluster should have.
    """
    view = ObservedCluster()
    for kind in (*(kind for kind in KINDS if kind in kinds), "Pod"):
        list_into(view, cluster, kind, active, recent)
    return view


def list_into(
    view: ObservedCluster, cluster: Cluster, kind: str, active: Container[str], recent: int
) -> None:
    for documents, version in list_kind(cluster, kind, LIVE_PODS if kind == "Pod" else ""):
        view.versions[kind] = version
        for document in documents:
            key = view.state.update(kind, "ADDED", document)
            if kind == "Pod":
                if DONE in annotations_of(document):
                    view.answered.append(document)
            elif key and key[0] not in active and view.state.is_over(document, recent):
                view.state.forget(key)


def list_kind(
    cluster: Cluster, kind: str, field: str = "", selector: str = SELECTOR
) -> Iterator[tuple[Sequence[Document], str]]:
    """Pages of our objects of a kind; none if the cluster does not know the kind."""
    try:
        yield from cluster.pages(
            kind, selector=selector, field=field, keep=partial(judged_fields, kind)
        )
    except ClusterError as error:
        if error.status == NOT_FOUND and kind in KINDS and not KINDS[kind].built_in:
            return  # its controller is not installed
        raise


def load(cluster: Cluster, state: ClusterState, kind: str, ids: Sequence[str]) -> list[Document]:
    """Read the objects of these workloads into the state, those that have ended, too."""
    found = list[Document]()
    for first in range(0, len(ids), NAMED):
        selector = f"{WORKLOAD_LABEL} in ({','.join(ids[first : first + NAMED])})"
        for documents, _ in list_kind(cluster, kind, selector=selector):
            for document in documents:
                state.update(kind, "ADDED", document)
            found += documents
    return found
