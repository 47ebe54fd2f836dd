"""What decides about a workload besides its place in the queue, as a hash that its place carries.

Who has the same hash in the same LocalQueue gets the same verdict, so that a pass reads one record
for all of them. Source: Kueue's scheduling equivalence hash.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sluice.core.lifecycle.options import Deadlines
from sluice.core.values.plain import canonical, to_plain

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload

LENGTH: Final = 24  # of other lengths are hashes that did not know the kind
NO_DEADLINES: Final = Deadlines()


def shape_hash(workload: Workload) -> str:
    """Hex digits for a new record; empty for one that time or others decide about, too."""
    options = workload.options
    if options.deadlines != NO_DEADLINES or options.pending_policy or options.depends_on:
        return ""
    parts = [workload.kind, to_plain(workload.pod_sets), to_plain(options), workload.submitted_by]
    return sha256(canonical(parts).encode()).hexdigest()[:LENGTH]
