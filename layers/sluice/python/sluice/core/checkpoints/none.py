"""No checkpoints: an interrupted workload starts from the beginning."""

from __future__ import annotations

from sluice.core.checkpoints.driver import CheckpointDriver, CheckpointMode, WorkKept
from sluice.core.checkpoints.fit import Bandwidth, CheckpointAction, CheckpointFit


class NoCheckpoints(CheckpointDriver):
    mode = CheckpointMode.NONE
    keeps = WorkKept.NOTHING

    def fit(self, size: int, left_ms: int, grace_ms: int, bandwidth: Bandwidth) -> CheckpointFit:
        why = "it keeps no checkpoints: it starts from the beginning"
        return CheckpointFit(CheckpointAction.LET_GO, 0, max(0, left_ms), size, why)
