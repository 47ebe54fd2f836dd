"""Dry run of submissions: whether they would be accepted, and would fit now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from sluice.core.config import tenants
from sluice.core.intake.documents import Document, Malformed, from_value
from sluice.core.intake.submission import Accepted, submission
from sluice.core.lifecycle.record import State
from sluice.core.passes.admission_cycle import decide
from sluice.core.passes.flavor_room import list_flavor_rooms, tree_in_use
from sluice.core.passes.scheduler_state import build_scheduler
from sluice.core.values.plain import to_plain
from sluice.usecases.admitting.submit import placed
from sluice.usecases.configuration import configured, plans_of
from sluice.usecases.reading.explain import about_quota, would_help
from sluice.usecases.request_errors import InvalidError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload
    from sluice.core.passes.cycle_plan import CycleInput
    from sluice.core.scheduling.scheduler import Refusal
    from sluice.ports import CatalogSnapshot, LedgerState
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

    Tree: TypeAlias = tuple[LedgerState, CycleInput]

MOST = 100
FITS = "would be admitted now"
PREEMPTS = "would be admitted after preemption"
WAITS = "would wait"
NEVER = "could never run"
REFUSED = "would be rejected"


@dataclass(frozen=True)
class WhatIf:
    """Uses the vetting of `submit`, and a cycle of `admit` with those who wait now; no writes."""

    query: Query

    def __call__(self, caller: Authority, documents: Sequence[Any]) -> Json:
        if len(documents) > MOST:
            raise InvalidError(f"{len(documents)} documents; ask about at most {MOST} at a time")
        snapshot = self.query.catalog.snapshot()
        tenant = _tenant(caller, snapshot)
        trees: dict[str, Tree] = {}
        return {"items": [self._verdict(caller, d, tenant, snapshot, trees) for d in documents]}

    def _verdict(
        self,
        caller: Authority,
        value: Any,
        tenant: tenants.Tenant,
        snapshot: CatalogSnapshot,
        trees: dict[str, Tree],
    ) -> Json:
        """Each document alone; `trees` keeps what was read for the ones before."""
        item = from_value(value)[0]
        if not isinstance(item, Document | Malformed):
            message = "a manifestRef is read only when it is submitted"
            return {"result": REFUSED, "errors": [{"field": "manifestRef", "message": message}]}
        judged = submission(item, tenant=tenant, key="dry-run", now_ms=self.query.clock.now())
        if not isinstance(judged, Accepted):
            return {"result": REFUSED, "errors": list(judged.errors)}
        workload, _ = placed(judged, snapshot, plans_of(snapshot, self.query.pools))
        if workload.state is State.REJECTED:
            return {"result": REFUSED, "errors": to_plain(workload.errors)}
        config = configured(snapshot)
        if workload.root not in trees:
            trees[workload.root] = self._tree(workload, snapshot)
        ledger, others = trees[workload.root]
        gathered = replace(others, waiting=[*others.waiting, workload])
        cycle = decide(config.queues, gathered, config.policies.of(workload.root))
        if any(step.change.before.id == workload.id for step in cycle.admitted):
            return {"result": FITS}
        yielding = [s for s in cycle.preempted if s.change.set["intent"].by == workload.id]
        if yielding:
            message = f"{len(yielding)} running workload(s) would yield their quota to it"
            return {"result": PREEMPTS, "message": message}
        tree = tree_in_use(config.queues, workload.root, ledger.usage)
        options = list(list_flavor_rooms(workload, config.queues.cluster_queues[workload.cq], tree))
        helps = list(would_help(caller, workload, options, (), tree))
        if not any(option.possible for option in options):
            return {"result": NEVER, "message": "; ".join(helps)}
        refusal = cycle.refusals.get(workload.id) or self._refusal(workload, gathered, ledger)
        if helps and about_quota(refusal.reason):
            return {"result": WAITS, "message": "; ".join(helps)}
        return {"result": WAITS, "message": refusal.message}

    def _refusal(self, workload: Workload, gathered: CycleInput, ledger: LedgerState) -> Refusal:
        """What a pass says to one that stands behind others: its plan names their first only."""
        config = configured(self.query.catalog.snapshot())
        policy = config.policies.of(gathered.root)
        scheduler = build_scheduler(config.queues, gathered, ledger.usage, policy)
        scheduler.run_pass(gathered.now)
        return scheduler.why(workload.id)

    def _tree(self, workload: Workload, snapshot: CatalogSnapshot) -> Tree:
        """The ledger, and all that a pass would look at beside a workload of this tree."""
        config, ledger = configured(snapshot), self.query.ledgers.read(workload.root)
        gathered = self.query.admit.gather(
            workload.root, ledger, snapshot, config, newcomer=workload
        )
        others = [each for each in gathered.waiting if each is not workload]
        return ledger, replace(gathered, waiting=others)


def _tenant(caller: Authority, snapshot: CatalogSnapshot) -> tenants.Tenant:
    """The Tenant of the caller's messages. Raises InvalidError before the first is applied."""
    document: Mapping[str, Any] | None = snapshot.of("Tenant").get(caller.sends_as)
    if document is None:
        raise InvalidError("no Tenant exists yet, so that no submission would be accepted")
    return tenants.parse(document)
