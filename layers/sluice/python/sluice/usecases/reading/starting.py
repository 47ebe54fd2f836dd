"""Why a workload that has its quota does not run yet: its pods without a machine, and till when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sluice.core.clusters.capacity import closed_flavors
from sluice.core.clusters.machine_sizes import why_never
from sluice.core.lifecycle import pods_ready
from sluice.core.lifecycle.record import Workload, phase
from sluice.core.migrations.interruption import epoch_ms
from sluice.core.values.reasons import Reason
from sluice.errors import ClusterError
from sluice.usecases.configuration import clusters_of, configured, plans_of
from sluice.usecases.running.pods_ready import rules_of
from sluice.usecases.views import Json, reason

if TYPE_CHECKING:
    from sluice.ports import Document
    from sluice.usecases.reading.query import Query

ASKED = 3
"""Of so many pods the events are read: those of a gang wait for the same."""
LONGEST = 300
_KARPENTER = "karpenter"


def starting(query: Query, workload: Workload) -> Json:
    """Headline, reason, the pods that have no node yet, and until when it is waited for them."""
    if workload.reservation is None or phase(workload) != "STARTING":
        return {}
    now = query.clock.now()
    pods = query.pods_now(workload)
    unplaced = [unplaced_pod(pod, now) for pod in pods if not pod["spec"].get("nodeName")]
    told = _deadline(query, workload, now)
    if unplaced:
        said = _said_by_karpenter(query, workload, unplaced[:ASKED])
        named = [{**pod, **said.get(pod["pod"], {})} for pod in unplaced]
        told |= {"unplacedPods": named, "pods": len(pods)}
        unplaced = named
    if (unplaced or not pods) and (never := _never(query, workload)):
        told |= {"wouldHelp": ["smaller pods, or more of them: submit it anew"]}
        headline = f"It can never run as it is: {never}"
        told |= {"reason": reason(Reason.REQUEST_LARGER_THAN_ANY_NODE, never)}
        return told | {"headline": headline}
    closed = closed_flavors(query.pools.plans(workload.cluster), now)
    for flavor in sorted(workload.reservation.flavors):
        if (why := closed.get(flavor)) and (unplaced or not pods):
            message = f"flavor {flavor}: {why.message}"
            headline = f"It has its quota, but {_how_many(unplaced, pods)}: {why.message}"
            return told | {"headline": headline, "reason": reason(why.reason, message)}
    if unplaced and not workload.reason.code:
        return told | _unplaced(unplaced, pods, told)
    return told


def _unplaced(unplaced: Sequence[Json], pods: Sequence[Document], told: Json) -> Json:
    first = unplaced[0]
    words = first.get("karpenter") or first["message"]
    said = f": {words}" if words else ""
    waited = first["waitedMs"] // 1_000
    left = told["podsReady"]["leftMs"] // 1_000
    headline = (
        f"It has its quota, but {_how_many(unplaced, pods)}, for {waited} s{said};"
        f" unless all are ready within {left} s, it goes back to its queue"
    )
    message = f"pod {first['pod']} has no node{said}"
    helps = [
        "a pod that fits a machine of the pool, or another flavor: `sluice capacity` shows them"
    ]
    return {
        "headline": headline,
        "reason": reason(Reason.WAITING_FOR_NODE, message),
        "wouldHelp": helps,
    }


def _never(query: Query, workload: Workload) -> str:
    """Which of its pods no machine can hold; empty: none."""
    snapshot = query.catalog.snapshot()
    queue = configured(snapshot).queues.cluster_queues.get(workload.cq)
    plans = plans_of(snapshot, query.pools)
    return why_never(workload.pod_sets, queue, plans, clusters_of(snapshot)) if queue else ""


def _deadline(query: Query, workload: Workload, now: int) -> Json:
    rules = rules_of(workload, query.catalog.snapshot())
    until = pods_ready.deadline(workload, rules)
    left = max(0, until - now)
    return {"podsReady": {"timeoutMs": rules.timeout_ms, "until": until, "leftMs": left}}


def _said_by_karpenter(query: Query, workload: Workload, pods: Sequence[Json]) -> dict[str, Json]:
    """Pod → what Karpenter said of it last; none if the cluster does not tell."""
    if query.clusters is None:
        return {}
    cluster, found = query.clusters.cluster(workload.cluster), dict[str, Json]()
    for pod in pods:
        field = f"involvedObject.name={pod['pod']}"
        try:
            events, _ = cluster.list("Event", field=field, namespace=workload.namespace)
        except ClusterError:
            return found
        own = [each for each in events if _of_karpenter(each)]
        if own:
            newest = max(own, key=_at)
            words = " ".join(str(newest.get("message") or "").split())
            found[pod["pod"]] = {"karpenter": _short(words)}
    return found


def _of_karpenter(event: Mapping[str, Any]) -> bool:
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent")
    return source == _KARPENTER and bool(event.get("message"))


def _at(event: Mapping[str, Any]) -> str:
    """Times are of one form, so text compares as time does."""
    series = (event.get("series") or {}).get("lastObservedTime")
    return str(event.get("lastTimestamp") or series or event.get("eventTime") or "")


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def unplaced_pod(pod: Mapping[str, Any], now: int) -> Json:
    """A pod without a node: how long it waits, and what the scheduler says of it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    refused: Mapping[str, Any] = next((c for c in conditions if c["type"] == "PodScheduled"), {})
    since = pod["metadata"].get("creationTimestamp") or refused.get("lastTransitionTime")
    return {
        "pod": pod["metadata"]["name"],
        "waitedMs": max(0, now - epoch_ms(since)) if since else 0,
        "message": str(refused.get("message") or ""),
    }


def _how_many(unplaced: Sequence[Json], pods: Sequence[Mapping[str, Any]]) -> str:
    if len(pods) == 1 or not pods:
        return "no node"
    return f"{len(unplaced)} of its {len(pods)} pods have no node"
