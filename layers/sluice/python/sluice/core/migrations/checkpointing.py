"""Checkpoints: which driver saves a workload, how long that takes, how often, what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Any, Final

from sluice.core.checkpoints.driver import Capability, CheckpointMode, Connections
from sluice.core.checkpoints.fit import Bandwidth
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.options import Options
from sluice.core.lifecycle.record import PodSet
from sluice.core.migrations.lasting_failures import lasting_restore_cause
from sluice.core.values.grace import DEFAULT_GRACE_SECONDS

LISTED: Final = 100
TRIES: Final = 2
"""How many runs may fail to start from a checkpoint before it counts as unusable."""
KEPT: Final = 3
"""Checkpoints of a workload that stay listed, unless it asks for another number."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one member of a gang is restored from (core.migrations.gangs), and where it ran."""

    name: str
    uri: str
    size: int = 0
    digest: str = ""
    """SHA-256 of the archive in hexadecimal."""
    node: str = ""
    image: str = ""
    cpu: str = ""
    """Which machines its processes can go on at (core.migrations.cpu_compatibility)."""

    @property
    def source(self) -> str:
        """What it is restored from: the image where the runtime wants one, else the archive."""
        return self.image or self.uri


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One complete checkpoint: of which generation, where it lies, what it cost (bytes, ms).

    That of a gang is the manifest of all its `parts`: it is entered once, when all are there.
    """

    workload: str
    generation: int
    uri: str
    at: int
    driver: CheckpointMode
    size: int = 0
    took_ms: int = 0
    parent: str = ""
    node: str = ""
    image: str = ""
    removed: bool = False
    """Its archive is gone or going, since its workload has succeeded; the line stays."""
    parts: tuple[Part, ...] = ()
    cpu: str = ""
    failed: tuple[int, ...] = ()
    """The generations that could not start from it; `failure` is why, of the last of them."""
    failure: str = ""

    @property
    def usable(self) -> bool:
        """Whether another run may start from it: few have failed, for a reason that may pass."""
        return len(self.failed) < TRIES and not (
            self.failed and lasting_restore_cause(self.failure)
        )

    @property
    def source(self) -> str:
        """What a run is restored from: the image where the runtime wants one, else the archive."""
        return self.image or self.uri

    @property
    def pieces(self) -> tuple[Part, ...]:
        """The archives and images that it consists of."""
        return self.parts or (Part("", self.uri, self.size, "", self.node, self.image, self.cpu),)

    @property
    def heaviest(self) -> int:
        """The most bytes that one node had to save; nodes work side by side."""
        return max(sum(p.size for p in self.pieces if p.node == n) for n in self.nodes)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(piece.node for piece in self.pieces)


def newest(checkpoints: Iterable[Checkpoint], members: int) -> Checkpoint | None:
    """The last one that a run of so many pods can start from: a gang from a whole set only."""
    fitting = (each for each in checkpoints if each.usable and len(each.pieces) == members)
    return next(iter(retained(fitting, 1)), None)


def retained(
    checkpoints: Iterable[Checkpoint], keep: int = KEPT, pinned: str = ""
) -> list[Checkpoint]:
    """The newest ones, newest first, one for each place: a repeated report adds nothing.

    What no run could start from comes last, and so leaves first. The one whose source is `pinned`
    stays too, however old.
    """
    newest = sorted(checkpoints, key=_worth, reverse=True)
    places = list({each.uri: each for each in reversed(newest)}.values())[::-1]
    return places[:keep] + [each for each in places[keep:] if pinned and each.source == pinned]


def _worth(checkpoint: Checkpoint) -> tuple[bool, int, int]:
    return checkpoint.usable, checkpoint.generation, checkpoint.at


@dataclass(frozen=True, slots=True)
class SaveFailure:
    """Why a workload could not be saved, at the last try (`at` in epoch ms)."""

    at: int
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class CheckpointEntries:
    """The checkpoints of one workload: listed ones, and those whose archives are to be removed.

    `refused`: the last try to save it, if that failed.
    """

    kept: tuple[Checkpoint, ...] = ()
    dropped: tuple[Checkpoint, ...] = ()
    refused: SaveFailure | None = None

    def keep(self, checkpoint: Checkpoint, retain: int, pinned: str) -> CheckpointEntries:
        if any(each.uri == checkpoint.uri for each in self.dropped):
            return self  # a late report of one that has left already
        known = {each.uri: each for each in self.kept}
        if before := known.get(checkpoint.uri):
            checkpoint = replace(checkpoint, failed=before.failed, failure=before.failure)
        known[checkpoint.uri] = checkpoint
        kept = tuple(retained(known.values(), retain, pinned))
        left = [each for uri, each in known.items() if uri not in {one.uri for one in kept}]
        failure = self.refused
        refused = failure if failure and failure.at > checkpoint.at else None
        return CheckpointEntries(kept, (*self.dropped, *left), refused)

    def refuse(self, failure: SaveFailure) -> CheckpointEntries:
        """It could not be saved; told again, or by an older answer, it changes nothing."""
        known = max((each.at for each in self.kept), default=0)
        if self.refused:
            known = max(known, self.refused.at)
        return replace(self, refused=failure) if failure.at > known else self

    def fail(self, source: str, generation: int, why: str) -> CheckpointEntries:
        """A run could not start from it; told again, it changes nothing."""
        return replace(self, kept=tuple(_failed(c, source, generation, why) for c in self.kept))

    def drop(self) -> CheckpointEntries:
        """All archives are to go; the lines stay, for the lineage."""
        going = [each for each in self.kept if not each.removed]
        lines = tuple(replace(each, removed=True) for each in self.kept)
        return CheckpointEntries(lines, (*self.dropped, *going), self.refused)

    def forget(self, removed: Iterable[Checkpoint]) -> CheckpointEntries:
        places = {each.uri for each in removed}
        return replace(self, dropped=tuple(e for e in self.dropped if e.uri not in places))


def _failed(checkpoint: Checkpoint, source: str, generation: int, why: str) -> Checkpoint:
    if checkpoint.source != source or generation in checkpoint.failed:
        return checkpoint
    return replace(checkpoint, failed=(*checkpoint.failed, generation), failure=why)


def observed_bandwidth(checkpoints: Iterable[Checkpoint], otherwise: Bandwidth) -> Bandwidth:
    """The bandwidth that past dumps showed, as one number for disk and network together."""
    rates = [c.heaviest / c.took_ms * 1000 for c in checkpoints if c.size and c.took_ms]
    if not rates:
        return otherwise
    return Bandwidth(disk=median(rates), network=float("inf"), amplification=1.0, uploaded=0.0)


def capability(node: InventoryRow) -> Capability:
    """From a row of the inventory; its `checkpoint` is a label such as `criu-4.2`."""
    program = node.checkpoint
    reason = node.checkpoint_reason or "the node cannot dump processes"
    return Capability(
        kubelet=program.startswith("criu"),
        reason=reason,
        closes_connections=node.connections == Connections.CLOSE,
    )


def size_of(kept: Iterable[Checkpoint], pod_sets: Iterable[PodSet], pods: int) -> int:
    """Bytes to save on one node: as the newest dump, else all the memory that its pods may use.

    `pods`: how many of them run on the node that has most to save; nodes work side by side.
    """
    if last := next((each for each in retained(kept) if each.size), None):
        return max(part.size for part in last.pieces) * pods
    return max((s.requests.get("memory", 0) for s in pod_sets), default=0) * pods


def interval_seconds(
    cost_seconds: float, mean_between_losses_seconds: float, nodes: int = 1
) -> float:
    """How often to save: √(2·μ·C), with μ/N for a gang of N. Source: Young 1974, Daly 2006."""
    return sqrt(2 * mean_between_losses_seconds / max(1, nodes) * cost_seconds)


def grace_ms(options: Options, pods: Sequence[Mapping[str, Any]]) -> int:
    """How long the pods may take to end after SIGTERM."""
    longest = max(
        (pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS) for pod in pods),
        default=DEFAULT_GRACE_SECONDS,
    )
    return int(max(longest, options.checkpoint_grace_seconds) * 1000)
