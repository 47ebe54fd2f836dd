"""Why a workload does not run: quota arithmetic, who holds it, who is ahead, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.config.model import QueueingStrategy
from sluice.core.lifecycle import checks
from sluice.core.lifecycle.indexes import pending_key
from sluice.core.lifecycle.record import TERMINAL, State, Workload, phase
from sluice.core.lifecycle.reservations import total
from sluice.core.migrations.victim_checkpoint import may_be_saved
from sluice.core.passes import wait_estimate
from sluice.core.passes.flavor_room import (
    FlavorRoom,
    fewest_endings,
    list_flavor_choices,
    list_flavor_rooms,
    tree_cells,
    tree_in_use,
)
from sluice.core.scheduling.quota import QuotaTree
from sluice.core.values.quantity import format_quantity
from sluice.core.values.reasons import Reason
from sluice.usecases.configuration import configured
from sluice.usecases.fleet import counted_at
from sluice.usecases.reading.advice import commands, hint_for_arrays, what_to_do
from sluice.usecases.reading.starting import starting
from sluice.usecases.views import Json, quantities, reason, workload_view

if TYPE_CHECKING:
    from sluice.core.config.model import ClusterQueue
    from sluice.ports import CatalogSnapshot
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

LOOKED_AT = 1_000  # waiting workloads of the queue whose order is told
SHOWN = 10
NAMED = 3
DAY_MS = 86_400_000
DUMPS = frozenset({"CheckpointDecided", "CheckpointCompleted", "CheckpointFailed"})
MOST_AHEAD = 100  # beyond them nobody guesses how long it takes
MOST_QUEUES = 10  # whose finished runs are read
RECENT = 100


@dataclass(frozen=True)
class Explain:
    """Reads through `query`, so that it shows what the caller may see and no more."""

    query: Query

    def __call__(self, caller: Authority, reference: str) -> Json:
        workload = self.query.rooted(self.query.find(caller, reference))
        answer = self._explained(caller, workload)
        if help_for_array := hint_for_arrays(workload):
            answer["wouldHelp"] = [help_for_array]
        return answer | {
            "toDo": what_to_do(workload, answer["reason"]),
            "commands": list(commands(caller, workload, answer["reason"])),
        }

    def _explained(self, caller: Authority, workload: Workload) -> Json:
        now = self.query.clock.now()
        refusals = self.query.refusals([workload.root])
        view = workload_view(workload, refusals, now)
        answer: Json = {
            "id": workload.id,
            "name": workload.name,
            "phase": view["phase"],
            "clusterQueue": workload.cq,
            "reason": view.get("reason"),
            "attempts": [] if workload.state in TERMINAL else view.get("runs", []),
        }
        if workload.state is not State.PENDING:
            told = {"headline": settled(workload) + self._saving(workload)}
            told |= starting(self.query, workload)
            if workload.reservation:
                told["placed"] = workload.placed
            return answer | told | self._hindered(caller, workload)
        snapshot = self.query.catalog.snapshot()
        queues = configured(snapshot).queues
        if workload.cq not in queues.cluster_queues:
            code = "MISCONFIGURATION:UnknownQueue"
            message = f"ClusterQueue {workload.cq} does not exist any more"
            return answer | {"headline": message, "reason": reason(code, message)}
        waiting = self._waiting(caller, workload, answer["reason"], snapshot)
        return answer | waiting | self._hindered(caller, workload)

    def _saving(self, workload: Workload) -> str:
        """How far the dump is for which somebody who makes room still keeps its place."""
        lines = self.query.timeline.of(workload.id) if may_be_saved(workload) else ()
        told = [
            line["message"]
            for line in lines
            if line["generation"] == workload.generation and line["what"] in DUMPS
        ]
        return f"; before it goes: {told[-1]}" if told else ""

    def _hindered(self, caller: Authority, workload: Workload) -> Json:
        """Headline and reason, if a function that has to do with the workload cannot work."""
        if workload.state in TERMINAL or workload.reason.code == Reason.MISSING_RIGHT:
            return {}
        now = self.query.clock.now()
        healthy = self._healthy_at(workload)
        for fault in self.query.faults.noted():
            since = healthy.get((fault.function, fault.subject), now)
            if fault.at > since and fault.recent(now):
                # Its words name other tenants' namespaces, too.
                words = fault.message if caller.admin else Reason(fault.code).sentence
                message = f"{fault.function} cannot do its work: {words}"
                return {"headline": message, "reason": reason(fault.code, message)}
        return {}

    def _healthy_at(self, workload: Workload) -> Mapping[tuple[str, str], int]:
        """When each (function, subject) that a workload depends on was last known to work."""
        if workload.state is State.PENDING:
            newest = self.query.ledgers.newest_pass(workload.root)
            return {("admit", workload.root): int(newest.get("at", 0))}
        functions = {("observe", workload.cluster): counted_at(self.query.nodes, workload.cluster)}
        if not workload.started_at:
            functions["act", workload.cluster] = workload.admitted_at
        return functions

    def _waiting(
        self, caller: Authority, workload: Workload, why: Json | None, snapshot: CatalogSnapshot
    ) -> Json:
        queues = configured(snapshot).queues
        root = queues.root_of(workload.cq)
        ledger = self.query.ledgers.read(root)
        tree = tree_in_use(queues, root, ledger.usage)
        options = list(list_flavor_rooms(workload, queues.cluster_queues[workload.cq], tree))
        holders = self._holders(
            snapshot, root, {cell for o in options for cell, _ in o.cells}, tree
        )
        ids = self.query.workloads.inbox(pending_key(workload.cq), limit=LOOKED_AT)
        place = ids.index(workload.id) + 1 if workload.id in ids else None
        ahead = self.query.workloads.get_many(ids[: min(place - 1, MOST_AHEAD)]) if place else []
        shown = [
            _line(caller, w, w.reservation.at if w.reservation else 0) for w in holders[:SHOWN]
        ]
        otherwise = why is not None and not about_quota(why["code"])
        # No quota in the world would start those.
        elsewhere = workload.held or workload.blocked or otherwise
        return {
            "headline": headline(workload, why, options, holders),
            "quota": []
            if workload.blocked
            else [line for option in options for line in _rows(option)],
            "holders": [] if elsewhere else [line | {"since": line["at"]} for line in shown],
            "ahead": [_line(caller, w, 0) for w in ahead[:SHOWN]],
            "position": place,
            "waiting": len(ids),
            "approximateWaitSeconds": None
            if elsewhere or place is None or place > MOST_AHEAD
            else self._outlook(queues.cluster_queues[workload.cq], tree, holders, ahead, workload),
            "wouldHelp": []
            if elsewhere
            else list(would_help(caller, workload, options, holders, tree)),
        }

    def _holders(
        self, snapshot: CatalogSnapshot, root: str, cells: set[int], tree: QuotaTree
    ) -> list[Workload]:
        """Workloads of the tree that hold the wanted flavors, largest first."""
        active = self.query.workloads.active
        ids = [i for cluster in snapshot.of("Cluster") for i in active(cluster, root)]
        weights = {
            w.id: (sum(n for cell, n in tree_cells(tree, w) if cell in cells), w)
            for w in self.query.workloads.get_many(dict.fromkeys(ids))
            if w.reservation and w.reservation.cq in tree.index
        }
        held = [pair for pair in weights.values() if pair[0]]
        return [w for _, w in sorted(held, key=lambda pair: (-pair[0], pair[1].id))]

    def _outlook(
        self,
        queue: ClusterQueue,
        tree: QuotaTree,
        holders: Sequence[Workload],
        ahead: Sequence[Workload],
        workload: Workload,
    ) -> Json | None:
        """Seconds until its turn, at least and at most; None where nothing is known of it."""
        now, line = self.query.clock.now(), [*ahead, workload]
        queues = list(dict.fromkeys(w.queue for w in (*holders, *ahead)))[:MOST_QUEUES]
        runtimes = {each: self._runtimes(each, now) for each in queues}

        def lasts(one: Workload) -> wait_estimate.Range:
            return wait_estimate.remaining_runtime(one, runtimes.get(one.queue, ()), now)

        least, most = wait_estimate.estimate_wait(
            tree,
            [
                wait_estimate.RunningEstimate(
                    tree.index[w.reservation.cq], tree_cells(tree, w), lasts(w)
                )
                for w in holders
                if w.reservation
            ],
            [
                wait_estimate.QueuedEstimate(
                    tree.index[queue.name], list_flavor_choices(w, queue, tree), lasts(w)
                )
                for w in line
            ],
            strict=queue.queueing_strategy is QueueingStrategy.STRICT_FIFO,
        )
        if not least and not most:
            return None
        return {"least": least / 1_000, "most": None if most is None else most / 1_000}

    def _runtimes(self, local_queue: str, now: int) -> list[int]:
        """Milliseconds of the last finished runs of a LocalQueue that succeeded."""
        recent = self.query.workloads.listed(local_queue, since=now - DAY_MS, limit=RECENT)
        done = [w for w in recent if w.result.succeeded and w.started_at]
        return [w.finished_at - w.started_at for w in done if w.finished_at > w.started_at]


def settled(workload: Workload) -> str:
    """One sentence about a workload that does not wait for quota."""
    said = workload.reason.message or workload.result.message
    end = f": {said}" if said else ""
    fields = "; ".join(map(str, workload.errors))
    intent = workload.intent.message if workload.intent else ""
    if workload.gated:
        return f"It {checks.waits_for(workload)}."
    now = phase(workload)
    if workload.reason.code == Reason.MISSING_RIGHT:
        return f"It is {now}, but a right is missing: {said}"
    sentences = {
        "ADMITTED": f"It has its quota; cluster {workload.cluster} is being told to start it{end}.",
        "STARTING": f"It has its quota; its pods are starting on {workload.cluster}{end}.",
        "RUNNING": f"It runs on {workload.cluster}.",
        "RECOVERING": "It is being moved, with its quota"
        + (f" ({intent})" if intent else "")
        + f"; `sluice events {workload.id}` tells how far it is.",
        "SUCCEEDED": "It has succeeded.",
        "FAILED": f"It has failed{end}.",
        "CANCELLED": f"It was cancelled{end}.",
        "REJECTED": f"It was rejected: {fields or said}",
    }
    return sentences.get(now, f"It is {now}" + (f": {intent}" if intent else end))


def about_quota(code: str) -> bool:
    """Whether a reason to wait is a matter of quota, so that more of it could help."""
    return code.startswith(("QUOTA:", "PRIORITY:", "FAIRSHARE:"))


def _rows(option: FlavorRoom) -> Iterator[Json]:
    names = ("request", "nominal", "used", "available", "potential")
    for resource in option.request:
        amounts = {name: getattr(option, name)[resource] for name in names}
        shown = {n: format_quantity(resource, max(0, amount)) for n, amount in amounts.items()}
        yield {"flavor": option.flavor, "resource": resource, **shown}


def headline(
    workload: Workload, why: Json | None, options: Sequence[FlavorRoom], holders: Sequence[Workload]
) -> str:
    """What matters most, in one line: what it asks, what is free, who has the rest."""
    if why and not about_quota(why["code"]):
        return f"It waits: {why['message'] or why['code']}"
    short = [
        f"{format_quantity(r, amount)} {r} of flavor {option.flavor} asked, "
        f"{format_quantity(r, max(0, option.available[r]))} of "
        f"{format_quantity(r, option.nominal[r])} free"
        for option in options
        for r, amount in option.request.items()
        if option.available[r] < amount
    ]
    if short and not any(option.fits for option in options):
        one = len(holders) == 1
        held = f"; {len(holders)} {'workload holds' if one else 'workloads hold'} the rest"
        return f"It waits for quota of {workload.cq}: {short[0]}" + (held if holders else "")
    if why:
        return f"It waits: {why['message'] or why['code']}"
    return "It waits for the next pass, which is about to look at it."


def would_help(
    caller: Authority,
    workload: Workload,
    options: Sequence[FlavorRoom],
    holders: Sequence[Workload],
    tree: QuotaTree,
) -> Iterator[str]:
    """Changes after which the workload would fit; each was tried on the tree."""
    if not options or any(option.fits for option in options):
        return
    possible = [option for option in options if option.possible]
    if not possible:
        for option in options:
            most = {r: min(n, option.potential[r]) for r, n in option.request.items()}
            yield f"ask for at most {_amounts(most)} ({option.flavor}): more it can never get"
        return
    for option in possible:
        ending = fewest_endings(workload, option, holders, tree)
        if ending:
            who = ", ".join(_known(caller, each) for each in ending[:NAMED])
            more = f" and {len(ending) - NAMED} more" if len(ending) > NAMED else ""
            yield f"the end of {who}{more} gives back what it needs ({option.flavor})"
        free = {r: min(n, max(0, option.available[r])) for r, n in option.request.items()}
        if all(free.values()):
            yield f"a request of {_amounts(free)} would fit now ({option.flavor})"
        lacking = {
            r: n - option.available[r] for r, n in option.request.items() if option.available[r] < n
        }
        yield (
            f"a nominalQuota higher by {_amounts(lacking)} in ClusterQueue {workload.cq} "
            f"({option.flavor}); ask an administrator"
        )


def _line(caller: Authority, workload: Workload, at: int) -> Json:
    """A workload beside the one that is asked about; others' names are not everybody's business."""
    seen = caller.may_see(workload.namespace)
    return {
        "id": workload.id if seen else "",
        "name": workload.name if seen else "(another tenant's)",
        "queue": workload.queue if seen else workload.cq,
        "priority": workload.priority,
        "request": quantities(total(workload.pod_sets)),
        "createdAt": workload.created_at,
        "at": at,
    }


def _known(caller: Authority, workload: Workload) -> str:
    amounts = _amounts(total(workload.pod_sets))
    if caller.may_see(workload.namespace):
        return f"{workload.name} ({workload.id}, {amounts})"
    return f"a workload of another tenant ({amounts})"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in quantities(amounts).items())
