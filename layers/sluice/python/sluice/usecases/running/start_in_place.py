"""Prepare and un-suspend an object that somebody else made, for one generation of its workload."""

from __future__ import annotations

from dataclasses import replace

from sluice.core.intake.rendering import Generation, render
from sluice.core.intake.submission import kubernetes_object
from sluice.core.lifecycle import in_place
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload
from sluice.core.values.reasons import Reason
from sluice.errors import ClusterError, ClusterForbidden
from sluice.ports import Cluster, Document
from sluice.usecases.migrations.stop_in_place import ATTEMPTS, find_object, patch, stop_in_place
from sluice.usecases.object_events import WARNING, tell

PERMANENT = (403, 422)


def prepare(
    cluster: Cluster, workload: Workload, manifest: Document, run: Generation, now: int
) -> Document | Intent | None:
    """The suspended object, ready for this generation; an Intent if it can never be made so.

    None while an earlier generation runs, such as of a cluster that was given up and came back.
    """
    *_, rendered = render(kubernetes_object(manifest), run)
    for _ in range(ATTEMPTS):
        job = find_object(cluster, workload)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return Intent(IntentKind.CANCEL, Reason.CANCELLED_BY_USER, in_place.DELETED)
        before = in_place.generation_of(job)
        if 0 <= before < workload.generation:
            earlier = replace(workload, generation=before)
            if stop_in_place(cluster, earlier, now, None) is None:
                return None
            job = find_object(cluster, workload) or job
        change = in_place.prepare(job, rendered, workload.generation)
        if not change:
            return job if change is not None else None
        try:
            made = patch(cluster, job, change)
        except ClusterForbidden:
            raise
        except ClusterError as error:
            if error.status not in PERMANENT:
                raise
            message = f"{workload.cluster} refuses it: {error}"
            return Intent(IntentKind.FAIL, Reason.POLICY_DENIED, message)
        if made is not None:
            return made
    return None


def tell_cancelled(cluster: Cluster, workload: Workload, now: int) -> None:
    """Its object stays suspended, for whoever made it to see and delete."""
    if workload.state is State.CANCELLED and (job := find_object(cluster, workload)):
        tell(cluster, job, "Cancelled", workload.reason.message, kind=WARNING, now=now)


def start_in_place(cluster: Cluster, workload: Workload, job: Document, now: int) -> None:
    """Un-suspend what was prepared and claimed for this generation."""
    if workload.state is not State.DISPATCHED or workload.object is None:
        return
    for _ in range(ATTEMPTS):
        change = in_place.start(job, workload.generation)
        if change is None or job["metadata"]["uid"] != workload.uid:
            return
        if patch(cluster, job, change) is not None:
            flavors = sorted(workload.reservation.flavors) if workload.reservation else ()
            message = f"admitted in {workload.queue} on {', '.join(flavors)}; `sluice why"
            tell(cluster, job, "Started", f"{message} {workload.id}`", now=now)
            return
        found = find_object(cluster, workload)
        if found is None:
            return
        job = found
