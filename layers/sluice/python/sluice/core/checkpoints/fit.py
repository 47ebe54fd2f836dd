"""Whether a checkpoint fits into the time that is left, from bytes, bandwidth and deadline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MARGIN_MS: Final = 8_000
"""Kept free before a deadline: messages, the deletion of the Job and clocks need their time."""
LEAD_MS: Final = 5_000
"""How long before the last moment the last dump begins: it may be larger than the one before."""
FREEZE_MS: Final = 500


class CheckpointAction(StrEnum):
    """What is done for the work on a machine that goes away."""

    DUMP = "dump"
    SIGNAL = "signal"
    LET_GO = "let go"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What saving processes costs on a kind of machine: bytes per second, and factors of the bytes.

    `amplification`: bytes written to disk per byte saved; `uploaded`: the share that travels.
    The defaults are those of containerd 2.2 on gp3 at 125 MiB/s with 1.25 GB/s to S3.
    Source: facts, checkpoint-restore §4; replaced by what is observed.
    """

    disk: float = 131_072_000.0
    network: float = 1_250_000_000.0
    amplification: float = 4.0
    uploaded: float = 1.0

    def needs_ms(self, size: int) -> int:
        """Milliseconds from the order until the checkpoint is complete in S3."""
        seconds = self.amplification * size / self.disk + self.uploaded * size / self.network
        return FREEZE_MS + int(seconds * 1000)


@dataclass(frozen=True, slots=True)
class CheckpointFit:
    """The decision with its numbers; milliseconds and bytes."""

    action: CheckpointAction
    needs_ms: int
    has_ms: int
    size: int
    sentence: str

    def numbers(self) -> dict[str, Any]:
        return {"needs_ms": self.needs_ms, "has_ms": self.has_ms, "bytes": self.size}


def fit_dump(size: int, left_ms: int, bandwidth: Bandwidth) -> CheckpointFit:
    """A dump if it fits; otherwise the processes are told to end."""
    needs, has = bandwidth.needs_ms(size), max(0, left_ms - MARGIN_MS)
    action = CheckpointAction.DUMP if needs <= has else CheckpointAction.SIGNAL
    return CheckpointFit(action, needs, has, size, f"{needs_and_has(needs, has)}: {action}")


def fits_twice(fit: CheckpointFit) -> bool:
    """Whether a dump at once leaves time for another one at the end."""
    dumps = fit.action is CheckpointAction.DUMP
    return dumps and 2 * fit.needs_ms + LEAD_MS <= fit.has_ms


def needs_and_has(needs_ms: int, has_ms: int) -> str:
    return f"needs {whole_seconds(needs_ms)}, has {whole_seconds(has_ms)}"


def whole_seconds(ms: int) -> str:
    return f"{max(0, ms) / 1000:.0f} s"
