"""The application saves its own work when it is signalled; only it knows what it has saved."""

from __future__ import annotations

from sluice.core.checkpoints.driver import CheckpointDriver, CheckpointMode, WorkKept, let_go
from sluice.core.checkpoints.fit import Bandwidth, CheckpointAction, CheckpointFit, whole_seconds


class ApplicationCheckpoints(CheckpointDriver):
    mode = CheckpointMode.APPLICATION
    keeps = WorkKept.BY_APPLICATION

    def fit(self, size: int, left_ms: int, grace_ms: int, bandwidth: Bandwidth) -> CheckpointFit:
        if left_ms <= 0:
            return let_go("what it saved itself", size)
        why = f"has {whole_seconds(left_ms)}, may take {whole_seconds(grace_ms)}: signal"
        return CheckpointFit(CheckpointAction.SIGNAL, min(grace_ms, left_ms), left_ms, size, why)
