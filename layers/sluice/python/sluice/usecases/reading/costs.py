"""What the work of a window has cost, by queue, user, namespace, label, workload or flavor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.accounting.costs import Amount, Bill
from sluice.core.accounting.usage_intervals import usage_intervals
from sluice.core.intake.submission import GPUS
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.run import Run
from sluice.usecases.reading.query import DAY_MS
from sluice.usecases.request_errors import InvalidError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

PAGE = 2_000  # records that one question reads besides those that are on a cluster
GIB = 2**30
MILLI = 1_000

Group = Callable[[Workload, Run], str]
"""The group of a run of a workload."""
GROUPS: Mapping[str, Group] = {
    "queue": lambda w, _: w.queue,
    "user": lambda w, _: w.submitted_by,
    "namespace": lambda w, _: w.namespace,
    "workload": lambda w, _: f"{w.id} {w.name}",
    "flavor": lambda _, run: run.flavor,
}
LABEL = "label:"


@dataclass(frozen=True)
class Costs:
    """Sums of the runs of a window, a page of records at a time; the sums of pages add up.

    Read are the records of those that are on a cluster, and of those whose last run has ended since
    the window began (index `ran`), `page` of them for each question.
    """

    query: Query
    page: int = PAGE

    def __call__(
        self,
        caller: Authority,
        *,
        by: str = "queue",
        queue: str = "",
        since: int | None = None,
        until: int | None = None,
        cursor: str = "",
    ) -> Json:
        """The bills of groups; `cursor` in the answer says that there is more.

        Times are epoch ms; by default the last 24 hours. Raises InvalidError.
        """
        now = self.query.clock.now()
        until = min(now if until is None else until, now)
        since = until - DAY_MS if since is None else since
        if since >= until:
            raise InvalidError("the window is empty: `since` must be before `until` and now")
        group = _group(by)
        found, more = self._candidates(caller, queue, since, cursor)
        bills: dict[str, Bill] = {}
        for workload in found:
            if workload.created_at >= until:
                continue
            for stretch in usage_intervals(workload, now):
                inside = stretch.within(since, until)
                if inside.run and inside.ms:
                    bills.setdefault(group(workload, inside.run), Bill()).add(inside, workload)
        items = [_view(key, bills[key]) for key in sorted(bills)]
        answer: Json = {"since": since, "until": until, "by": by, "items": items}
        return answer | {"cursor": more} if more else answer

    def _candidates(
        self, caller: Authority, queue: str, since: int, cursor: str
    ) -> tuple[Iterable[Workload], str]:
        """The records of one page, and where the next begins.

        Those on a cluster belong to the first page. A page ends with `page` keys of the index.
        """
        snapshot = self.query.catalog.snapshot()
        queues = self.query.queues(caller, snapshot, queue)
        workloads, first = self.query.workloads, f"{since:013d}"
        active = () if cursor else snapshot.of("Cluster")
        ids = dict.fromkeys(i for cluster in active for i in workloads.active(cluster))
        start, _, position = cursor.partition("|")
        if cursor and not (start in queues and position):
            raise InvalidError(f"{cursor!r:.80} is no cursor of this question")
        left, more = self.page, ""
        for name in queues[queues.index(start) if cursor else 0 :]:
            if not left:
                more = f"{name}|{first}"
                break
            keys = workloads.ran(name, since=position or first, limit=left)
            position, left = "", left - len(keys)
            ids |= dict.fromkeys(key.partition("#")[2] for key in keys)
            if keys and not left:
                more = f"{name}|{keys[-1]}~"  # above this key and below every later one
                break
        wanted = set(queues)
        return (w for w in workloads.get_many(ids) if w.queue in wanted), more


def _group(by: str) -> Group:
    """Raises InvalidError."""
    if by.startswith(LABEL) and (label := by.removeprefix(LABEL)):
        return lambda workload, _: workload.labels.get(label, "")
    if by not in GROUPS:
        known = ", ".join([*GROUPS, f"{LABEL}KEY"])
        raise InvalidError(f"{by!r:.80} is nothing to group by; choose one of {known}")
    return GROUPS[by]


def _view(key: str, bill: Bill) -> Json:
    return {
        "key": key,
        "workloads": len(bill.workloads),
        "runs": len(bill.runs),
        "parts": {kind.value: amount_view(part) for kind, part in bill.parts.items()},
        "total": amount_view(bill.total),
        "unpriced": amount_view(bill.unpriced),
        "spotSavedUsd": bill.saved_usd,
        "spotSavingUnknown": amount_view(bill.unknown_saving),
        "lossesUntold": len(bill.losses_untold),
    }


def amount_view(amount: Amount) -> Json:
    """Seconds with machines, resource-seconds, dollars."""
    per = {name: total / MILLI for name, total in amount.resources.items()}
    return {
        "seconds": amount.ms / MILLI,
        "cpuSeconds": per.get("cpu", 0.0) / MILLI,
        "memoryGibSeconds": per.get("memory", 0.0) / GIB,
        "gpuSeconds": sum(per.get(name, 0.0) for name in GPUS),
        "usd": amount.usd,
    }
