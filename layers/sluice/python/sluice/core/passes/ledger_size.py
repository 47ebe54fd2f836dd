"""How large the ledger of a root cohort may become, by the quotas that are configured below it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sluice.core.config.catalog import QueueCatalog

ITEM_BYTES: Final = 400 * 1024  # DynamoDB's limit of an item
MOST_LEDGER_BYTES: Final = ITEM_BYTES // 2  # the other half: past use of LocalQueues, and budgets
PACKED_BYTES: Final = 4096
PACKING: Final = 6  # zlib's level
SPREAD: Final = 2_654_435_761  # makes amounts that compress badly, as real ones do


def packed(cells: Mapping[str, Any]) -> Any:
    """A large map as compressed JSON, a third of its size: each commit writes the whole item."""
    text = json.dumps(cells, separators=(",", ":")).encode()
    return cells if len(text) < PACKED_BYTES else zlib.compress(text, PACKING)


def unpacked(stored: Any) -> Any:
    """Inverse of `packed`; small maps and those of older versions are stored as they are."""
    return json.loads(zlib.decompress(stored)) if isinstance(stored, bytes) else stored


def ledger_bytes(catalog: QueueCatalog, root: str) -> tuple[int, int]:
    """Cells below a root, and the bytes that their amounts take if every one is in use."""
    usage: dict[str, dict[str, int]] = {}
    number = 0
    for queue in catalog.cluster_queues.values():
        if catalog.root_of(queue.name) != root:
            continue
        cells = usage.setdefault(queue.name, {})
        for group in queue.resource_groups:
            for flavor in group.flavors:
                for resource in group.covered_resources:
                    number += 1
                    cells[f"{flavor.name}|{resource}"] = number * SPREAD**2 % 10**12
    stored = packed(usage)
    return number, len(stored) if isinstance(stored, bytes) else PACKED_BYTES
