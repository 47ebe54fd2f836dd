"""The table of checkpoint drivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from sluice.cedana.driver import CedanaCheckpoints
from sluice.core.checkpoints.application import ApplicationCheckpoints
from sluice.core.checkpoints.driver import (
    Capability,
    CheckpointDriver,
    CheckpointMode,
    PodFacts,
)
from sluice.core.checkpoints.kubelet import KubeletCheckpoints
from sluice.core.checkpoints.none import NoCheckpoints

DRIVERS: Final[Mapping[CheckpointMode, CheckpointDriver]] = {
    driver.mode: driver
    for driver in (
        NoCheckpoints(),
        ApplicationCheckpoints(),
        KubeletCheckpoints(),
        CedanaCheckpoints(),
    )
}


class AsksForDriver(Protocol):
    """The options of a workload."""

    @property
    def checkpoint_mode(self) -> CheckpointMode: ...


def driver_of(options: AsksForDriver) -> CheckpointDriver:
    """The driver that a workload asks for."""
    return DRIVERS[options.checkpoint_mode]


def needed_service(options: AsksForDriver) -> CheckpointMode | None:
    """The driver that needs a Cluster with its service, if the workload asks for one."""
    driver = driver_of(options)
    return driver.mode if driver.service else None


def stored_by_service(uri: str) -> CheckpointDriver | None:
    """The driver whose service stores a checkpoint; None: it is an archive in S3."""
    return next((d for d in DRIVERS.values() if d.scheme and uri.startswith(d.scheme)), None)


def usable_driver(
    asked: CheckpointDriver, pods: PodFacts, node: Capability
) -> tuple[CheckpointDriver, str]:
    """The driver that can save these pods, and why it is not the one that was asked for."""
    why = asked.why_not(pods, node)
    return (DRIVERS[CheckpointMode.APPLICATION], why) if why else (asked, "")
