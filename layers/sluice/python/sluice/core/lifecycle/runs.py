"""The accounts of runs in a record: where, from when to when, at what cost; and the waits."""

from __future__ import annotations

from dataclasses import replace

from sluice.core.config.budget import HOUR_MS
from sluice.core.lifecycle.record import IntentKind, Workload
from sluice.core.lifecycle.record_entries import Charge
from sluice.core.lifecycle.run import Run
from sluice.core.values.reasons import Reason


def run(workload: Workload, outcome: str, now: int) -> Run:
    """The run of the present generation, which ended `now` (epoch ms) with this outcome."""
    reservation, machine = workload.reservation, workload.machine
    if machine.on_demand_usd_per_hour is not None:  # both prices say what kind of machine it was
        machine = replace(machine, capacity="")
    held = {each.name: each.count for each in reservation.pod_sets} if reservation else {}
    partly = held != {each.name: each.count for each in workload.pod_sets}
    return Run(
        generation=workload.generation,
        cluster=workload.cluster,
        admitted_at=workload.admitted_at,
        dispatched_at=workload.dispatched_at,
        started_at=workload.started_at,
        ended_at=now,
        outcome=outcome,
        flavor=",".join(sorted(reservation.flavors)) if reservation else "",
        counts=held if partly else {},
    ).with_known(machine)


def present_run(workload: Workload) -> Run:
    """The run so far of a generation that is on a cluster; `ended_at` is 0."""
    return run(workload, "", 0)


def accrued(workload: Workload, charge: Charge, now: int) -> int:
    """What the time since the reservation has cost, until the workload ended or now."""
    if workload.reservation is None:
        return 0
    ended = workload.finished_at or now
    held = max(0, ended - workload.reservation.at)
    return -(-charge.per_hour * held // HOUR_MS)


def waited_ms(workload: Workload, now: int) -> int:
    """How long it waited for quota: until it was admitted, and after each return to its queue.

    A move is no wait: the workload keeps its quota.
    """
    stays = [(run.admitted_at, run.ended_at, run.outcome) for run in workload.runs]
    if not workload.runs or workload.runs[-1].generation != workload.generation:
        stays.append((workload.admitted_at or workload.finished_at or now, now, ""))
    waited, queued_at = 0, workload.created_at
    for admitted_at, ended_at, outcome in stays:
        if queued_at:
            waited += max(0, admitted_at - queued_at)
        queued_at = 0 if outcome == IntentKind.MIGRATE else ended_at
    return waited


def ordering_time(workload: Workload) -> int:
    """What orders it in its queue: creation, or the end of a run that a check asked to retry.

    Also the time of the eviction, if not all of its pods were ready in time.

    Source: Kueue's queue order timestamp.
    """
    last = workload.runs[-1] if workload.runs else None
    if (
        last is not None
        and last.outcome == IntentKind.REQUEUE
        and workload.reason.code == Reason.ADMISSION_CHECK
    ):
        return last.ended_at
    return (last.ordered_at if last is not None else 0) or workload.created_at


def queued_at(workload: Workload) -> int:
    """Since when it has been in its queue: its submission, or the end of its last run."""
    return workload.runs[-1].ended_at if workload.runs else workload.created_at


def first_admitted_at(workload: Workload) -> int:
    """When quota was given first; 0 while it never was."""
    return next((run.admitted_at for run in workload.runs), workload.admitted_at)
