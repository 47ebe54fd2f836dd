"""Limits of AWS that a configuration would meet later, refused by name while it is applied."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.core.config.catalog import QueueCatalog
from sluice.core.passes.ledger_size import ITEM_BYTES, MOST_LEDGER_BYTES, ledger_bytes
from sluice.usecases.request_errors import InvalidError


def check_ledgers(queues: QueueCatalog, roots: Iterable[str]) -> None:
    """Raises InvalidError for a root whose ledger could not be written once all is in use."""
    known = queues.roots()
    for root in sorted(roots):
        if root not in known:
            continue
        cells, size = ledger_bytes(queues, root)
        if size > MOST_LEDGER_BYTES:
            raise InvalidError(
                f"root cohort {root} would have {cells:,} quotas (ClusterQueue, flavor and "
                f"resource); its ledger would take {size // 1024} KB in use, more than the "
                f"{MOST_LEDGER_BYTES // 1024} KB that are kept for it in one item of DynamoDB "
                f"({ITEM_BYTES // 1024} KB at most); divide the cohort, or leave out flavors"
            )
