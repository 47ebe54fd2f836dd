"""The interface of a checkpoint driver, with what most drivers have in common as its defaults.

A driver is one module with one class that derives from `CheckpointDriver`; `drivers` is the table
of all of them. docs/checkpoint-drivers.md shows how one is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from sluice.core.checkpoints.fit import Bandwidth, CheckpointAction, CheckpointFit, fit_dump
from sluice.core.config.document import Fields

Document = Mapping[str, Any]


class CheckpointMode(StrEnum):
    """The names of the drivers, as a workload asks for them and as records keep them."""

    NONE = "none"
    APPLICATION = "application"
    KUBELET = "kubelet"
    CEDANA = "cedana"


class Connections(StrEnum):
    """What a checkpoint does with open TCP connections."""

    CLOSE = "close"
    """They are closed; the program sees a network failure and connects again."""
    REFUSE = "refuse"
    """A pod with an open connection is not dumped."""


class WorkKept(StrEnum):
    """What an interruption leaves of the work of a run."""

    NOTHING = "nothing"
    BY_APPLICATION = "by the application"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class JobShape:
    """What a driver may refuse at submission: pods that run at once, and their identity.

    `adopts_pods`: whether its controller takes over a pod with its labels (core.jobs.kind).
    """

    adopts_pods: bool
    pods: int = 1
    indexed: bool = False


@dataclass(frozen=True, slots=True)
class DriverRefusal:
    """The field of the Job (`spec.parallelism`) that a driver cannot serve, and what to do."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Capability:
    """What a node can do for drivers; `reason` says why it cannot dump processes."""

    kubelet: bool = False
    reason: str = "the node has no CRIU"
    closes_connections: bool = False
    """Whether its dumps close open TCP connections; otherwise CRIU refuses them."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known of the pods that are to be saved together.

    `gang`: why they cannot be saved as one set (core.migrations.gangs); empty if they can.
    `refused`: why a trial showed that these programs can never be dumped; empty if none did.
    """

    containers: int = 1
    gpus: int = 0
    gang: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class RestoreNeeds:
    """What a pod bears that is to start from a checkpoint.

    `gated`: it is not scheduled before it is known what it is restored from. `stand_in`: it never
    runs; the driver's service restores another pod in its place. `annotated`: the pod names its
    source. `image`: the image from which the container runtime restores by itself.
    """

    gated: bool = False
    stand_in: bool = False
    annotated: bool = False
    image: str = ""


class CheckpointDriver(Protocol):
    """One way to save the work of a pod."""

    mode: CheckpointMode
    keeps: WorkKept = WorkKept.PROCESSES
    closes_connections: bool = False
    """Whether `checkpoint.connections` means anything to it."""
    filters_calls: bool = False
    """Whether its pods get the seccomp profile `RuntimeDefault`, unless they name another.

    That profile keeps programs from io_uring, which CRIU cannot save; they do without it.
    """
    hears_signal: bool = True
    """Whether `checkpoint.signal` means anything to it."""
    service: str = ""
    """The field of a Cluster's spec with the service that it needs; empty: it needs none.

    Nobody on a node answers the orders of such a driver; its reconciler does.
    """
    scheme: str = ""
    """How addresses of checkpoints begin that its service stores; empty: they are in S3."""
    domains: tuple[str, ...] = ()
    """Of labels and annotations that tenants may not set."""
    variables: tuple[str, ...] = ()
    """Prefixes of environment variables that tenants may not set."""

    @property
    def dumps(self) -> bool:
        """Whether it saves processes rather than ask the application."""
        return self.keeps is WorkKept.PROCESSES

    def refuse(self, job: JobShape) -> DriverRefusal | None:
        """What of a submitted Job the driver cannot serve."""
        return None

    def why_not(self, pods: PodFacts, node: Capability) -> str:
        """Why it cannot save these pods on these nodes; empty if it can.

        Source: facts, checkpoint-restore §3 and §9.
        """
        return ""

    def fit(self, size: int, left_ms: int, grace_ms: int, bandwidth: Bandwidth) -> CheckpointFit:
        """Dump, signal or let go, from the bytes to save and the time that is left."""
        if left_ms <= 0:
            return let_go("its last checkpoint", size)
        return fit_dump(size, left_ms, bandwidth)

    def restore_needs(self, source: str) -> RestoreNeeds:
        """What the pods of a run that starts from this address bear."""
        return RestoreNeeds(annotated=bool(source))

    def runtime_class(self, pod: Document) -> str:
        """The RuntimeClass that a pod needs to be saved; empty for the node's own."""
        return ""

    def read_service(self, fields: Fields) -> object:
        """The settings of its service in a Cluster; hashable, and None without a `service`."""
        return None

    @property
    def without_service(self) -> str:
        """What a submitter is told where no Cluster has the service."""
        return ""


def let_go(source: str, size: int) -> CheckpointFit:
    """No time is left for anything."""
    why = f"no time is left: it goes on from {source}, if any"
    return CheckpointFit(CheckpointAction.LET_GO, 0, 0, size, why)


IN_S3: Final = "s3://"


def is_set(source: str) -> bool:
    """Whether a run that starts from there needs another archive for each of its pods."""
    return source.startswith(IN_S3) and source.endswith("/")
