"""Keep new work from a cluster, and send elsewhere what stands on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import ON_CLUSTER, Intent, IntentKind, State, Workload, phase
from sluice.core.values.reasons import Reason
from sluice.usecases.configuration import cluster_spec, clusters_of
from sluice.usecases.request_errors import NotFoundError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.ports import Catalog, CatalogSnapshot, Document, Kicks, Workloads
    from sluice.usecases.callers import Authority
    from sluice.usecases.steering.apply import Apply

MOST: Final = 500  # records that one request changes
CORDONED_BY: Final = "sluice.dev/cordoned-by"


@dataclass(frozen=True, kw_only=True)
class Drain:
    """A cordon is `spec.cordoned` of the Cluster object; applying it without that ends the cordon.

    Drained work gives its quota back once its pods are gone, and queues again, to go on from its
    last checkpoint; the cordon keeps it from coming back.
    """

    workloads: Workloads
    catalog: Catalog
    kicks: Kicks
    apply: Apply

    def cordon(
        self, caller: Authority, cluster: str, *, on: bool, reason: str, dry_run: bool
    ) -> Json:
        """`{cluster, cordoned, changed, dryRun}`. Raises ForbiddenError, NotFoundError."""
        caller.require_admin(f"{'cordoning' if on else 'uncordoning'} a cluster")
        snapshot = self.catalog.snapshot()
        document = _known(snapshot, cluster)
        told = f"{caller.who}: {reason}" if reason else caller.who
        changed = cluster_spec(snapshot, cluster).cordoned is not on
        if changed:
            wanted = _cordoned(document, told) if on else _open(document)
            self.apply(caller, [wanted], dry_run=dry_run)
        return {"cluster": cluster, "cordoned": on, "changed": changed, "dryRun": dry_run}

    def __call__(self, caller: Authority, cluster: str, *, reason: str, dry_run: bool) -> Json:
        """`{cluster, requeued, stopping, left, nowhere, items, dryRun}`; to be repeated.

        `requeued` are told to go now, `stopping` were so before, `left` is all that stands there
        still. `nowhere` counts those whose flavors no other cluster offers: they will wait.
        Raises ForbiddenError, NotFoundError.
        """
        caller.require_admin("draining a cluster")
        self.cordon(caller, cluster, on=True, reason=reason, dry_run=dry_run)
        found = self.workloads.get_many(self.workloads.active(cluster))
        there = [w for w in found if w.state in ON_CLUSTER and w.cluster == cluster]
        chosen = [w for w in there if w.state in {State.ADMITTED, State.DISPATCHED}][:MOST]
        others = _offers(self.catalog.snapshot(), cluster)
        nowhere = [w for w in chosen if not any(_fits(w, offered) for offered in others.values())]
        told = f"{cluster} is drained by {caller.who}" + (f": {reason}" if reason else "")
        intent = Intent(IntentKind.REQUEUE, Reason.CLUSTER_CORDONED, told, by=caller.who)
        done = [True] * len(chosen)
        if not dry_run:
            done = self.workloads.apply([lifecycle.reclaim(w, intent) for w in chosen])
            self.kicks.kick(sorted({w.root for w in chosen}))
        return {
            "cluster": cluster,
            "requeued": sum(done),
            "stopping": len(there) - len(chosen),
            "left": len(there),
            "nowhere": len(nowhere),
            "items": [_item(w, w in nowhere) for w in chosen],
            "dryRun": dry_run,
        }


def _known(snapshot: CatalogSnapshot, cluster: str) -> Document:
    documents = snapshot.of("Cluster")
    if cluster not in documents:
        known = ", ".join(sorted(documents)) or "none"
        raise NotFoundError(f"no Cluster is named {cluster}", hint=f"clusters: {known}")
    return documents[cluster]


def _cordoned(document: Document, told: str) -> Document:
    metadata: dict[str, Any] = dict(document["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CORDONED_BY: told}
    return document | {
        "metadata": metadata,
        "spec": {**(document.get("spec") or {}), "cordoned": True},
    }


def _open(document: Document) -> Document:
    metadata: dict[str, Any] = dict(document["metadata"])
    notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != CORDONED_BY}
    metadata = {k: v for k, v in metadata.items() if k != "annotations"}
    spec = {k: v for k, v in (document.get("spec") or {}).items() if k != "cordoned"}
    return document | {
        "metadata": metadata | ({"annotations": notes} if notes else {}),
        "spec": spec,
    }


def _offers(snapshot: CatalogSnapshot, drained: str) -> dict[str, frozenset[str]]:
    """The flavors of every other cluster that takes work."""
    everything = frozenset(snapshot.of("ResourceFlavor"))
    return {
        name: frozenset(flavors) or everything
        for name, flavors in clusters_of(snapshot).items()
        if name != drained
    }


def _fits(workload: Workload, offered: frozenset[str]) -> bool:
    """Whether a cluster offers what it has now; the queue may give it other flavors, too."""
    return workload.reservation is None or workload.reservation.flavors <= offered


def _item(workload: Workload, nowhere: bool) -> Json:
    return {
        "id": workload.id,
        "name": workload.name,
        "queue": workload.queue,
        "phase": phase(workload),
        "elsewhere": not nowhere,
    }
