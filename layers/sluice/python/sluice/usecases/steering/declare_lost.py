"""Declare a cluster lost for good, so that its work may go on elsewhere: an operator's word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.clusters.fleet import SILENT_MS
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.inventory_row import DeclaredLost, Heartbeat
from sluice.core.lifecycle.record import ON_CLUSTER, Intent, IntentKind, awaits_release
from sluice.core.values.reasons import Reason
from sluice.usecases.request_errors import ConflictError, InvalidError, NotFoundError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload
    from sluice.ports import Catalog, Clock, Kicks, Nodes, Workloads
    from sluice.usecases.callers import Authority

MOST = 500  # records that one request changes


@dataclass(frozen=True, kw_only=True)
class DeclareLost:
    """Silence cannot be told from running, so only a person may say that nothing runs any more.

    Quota is still given back by `admit` alone, which sees the mark `gone` as after any other stop.
    """

    workloads: Workloads
    catalog: Catalog
    nodes: Nodes
    kicks: Kicks
    clock: Clock

    def __call__(
        self, caller: Authority, cluster: str, *, reason: str, dry_run: bool = False
    ) -> Json:
        """`{cluster, declared, left}`: how many workloads leave it, and how many are still to.

        Raises ForbiddenError, NotFoundError, InvalidError without a reason, and ConflictError
        while the cluster answers.
        """
        caller.require_admin("declaring a cluster lost")
        if cluster not in self.catalog.snapshot().of("Cluster"):
            raise NotFoundError(f"no Cluster is named {cluster}", hint="`sluice objects Cluster`")
        if not reason.strip():
            raise InvalidError("say what became of the cluster: it stands in every timeline")
        seen_at = self._require_silent(cluster)
        held = [w for w in self.workloads.get_many(self.workloads.active(cluster)) if stands(w)]
        chosen = held[:MOST]
        if dry_run:
            return {"cluster": cluster, "declared": len(chosen), "left": len(held), "dryRun": True}
        lost = DeclaredLost(self.clock.now(), caller.who, reason)
        self.nodes.put_heartbeat(Heartbeat(cluster, seen_at, lost))
        message = f"{cluster} was declared lost by {caller.who}: {reason}"
        intent = Intent(IntentKind.REQUEUE, Reason.CLUSTER_LOST, message, by=caller.who)
        done = sum(self.workloads.apply([lifecycle.lose(w, intent) for w in chosen]))
        self.kicks.kick(sorted({w.root for w in chosen}))
        return {"cluster": cluster, "declared": done, "left": len(held) - done, "dryRun": False}

    def _require_silent(self, cluster: str) -> int:
        """When it answered last. Raises ConflictError if that was just now."""
        beats = self.nodes.heartbeats()
        seen_at = max((each.seen_at for each in beats if each.instance == cluster), default=0)
        silent = self.clock.now() - seen_at
        if silent <= SILENT_MS:
            raise ConflictError(
                f"{cluster} answered {silent // 1000} s ago: it is not lost",
                hint=f"`sluice admin drain {cluster}` sends its work away; a cluster is lost after "
                f"{SILENT_MS // 1000} s of silence at least",
            )
        return seen_at


def stands(workload: Workload) -> bool:
    """Whether it is on its cluster, and nobody has proven it gone."""
    return workload.state in ON_CLUSTER and not awaits_release(workload)
