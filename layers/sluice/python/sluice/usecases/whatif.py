"""Dry run of submissions: whether they would be accepted, and would fit now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.core import tenants
from sluice.core.documents import Document, Malformed, from_value
from sluice.core.submission import Accepted, submission
from sluice.core.workload import State
from sluice.usecases.configuration import configured
from sluice.usecases.explain import options_of, tree_in_use, would_help
from sluice.usecases.refused import InvalidError
from sluice.usecases.submit import placed
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.ports import CatalogSnapshot
    from sluice.usecases.callers import Authority
    from sluice.usecases.query import Query

MOST = 100
FITS = "would be admitted now"
WAITS = "would wait"
NEVER = "could never run"
REFUSED = "would be rejected"


@dataclass(frozen=True)
class WhatIf:
    """Uses the vetting of `submit` and the arithmetic of `admit`; writes nothing."""

    query: Query

    def __call__(self, caller: Authority, documents: Sequence[Any]) -> Json:
        if len(documents) > MOST:
            raise InvalidError(f"{len(documents)} documents; ask about at most {MOST} at a time")
        snapshot = self.query.catalog.snapshot()
        tenant = _tenant(caller, snapshot)
        return {"items": [self._verdict(caller, d, tenant, snapshot) for d in documents]}

    def _verdict(
        self, caller: Authority, value: Any, tenant: tenants.Tenant, snapshot: CatalogSnapshot
    ) -> Json:
        item = from_value(value)[0]
        if not isinstance(item, Document | Malformed):
            message = "a manifestRef is read only when it is submitted"
            return {"result": REFUSED, "errors": [{"field": "manifestRef", "message": message}]}
        judged = submission(item, tenant=tenant, key="dry-run", now_ms=self.query.clock.now())
        if not isinstance(judged, Accepted):
            return {"result": REFUSED, "errors": list(judged.errors)}
        workload, _ = placed(judged, snapshot)
        if workload.state is State.REJECTED:
            return {"result": REFUSED, "errors": list(workload.errors)}
        queues = configured(snapshot).queues
        ledger = self.query.ledgers.read(workload.root)
        tree = tree_in_use(queues, workload.root, ledger.usage)
        options = list(options_of(workload, queues.cluster_queues[workload.cq], tree))
        if any(option.fits for option in options):
            return {"result": FITS}
        possible = any(option.possible for option in options)
        helps = would_help(caller, workload, options, (), tree)
        return {"result": WAITS if possible else NEVER, "message": "; ".join(helps)}


def _tenant(caller: Authority, snapshot: CatalogSnapshot) -> tenants.Tenant:
    """The caller's Tenant. Raises InvalidError before the first one is applied."""
    document: Mapping[str, Any] | None = snapshot.of("Tenant").get(caller.tenant)
    if document is None:
        raise InvalidError("no Tenant exists yet, so that no submission would be accepted")
    return tenants.parse(document)
