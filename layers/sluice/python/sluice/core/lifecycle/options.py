"""The part of a submission that Sluice itself acts on, as the record of a workload holds it.

Read from documents by core.intake.workload_options. Durations are in the unit of their name, money
in cents; None means not asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sluice.core.checkpoints.driver import CheckpointMode, Connections
from sluice.core.config.pods_ready import WaitForPodsReady
from sluice.core.config.tenants import PodSecurity
from sluice.core.values.grace import MAX_GRACE_SECONDS


class Capacity(StrEnum):
    """What kind of instance a workload accepts, if it minds."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class DependencyCondition(StrEnum):
    """What a workload waits for in another one."""

    SUCCEEDED = "Succeeded"
    FINISHED = "Finished"
    FAILED = "Failed"


class PendingAction(StrEnum):
    """What happens to a workload that waits too long."""

    NOTIFY = "Notify"
    CANCEL = "Cancel"
    ALLOW_ON_DEMAND = "AllowOnDemand"
    ESCALATE = "Escalate"


class FailureAction(StrEnum):
    """What happens after a failure with certain exit codes."""

    RETRY = "Retry"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How a workload is saved; `uri` is where an application writes its own checkpoints."""

    mode: CheckpointMode
    signal: str = ""
    grace_seconds: int | None = None
    interval_seconds: int | None = None
    """Seconds between ordered checkpoints; None: computed (core.migrations.periodic.rhythm)."""
    retain: int | None = None
    uri: str = ""
    connections: Connections | None = None
    """What a dump does with open TCP connections; None: the default of its driver."""


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What happens after a failure with one of these exit codes."""

    exit_codes: tuple[int, ...]
    action: FailureAction
    counts_against_budget: bool


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """What happens after interruptions and failures."""

    backoff_seconds: int | None = None
    on_demand_after: int | None = None
    retries: int | None = None
    rules: tuple[FailureRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a workload may wait and run, and how long it expects to run."""

    max_pending_seconds: int | None = None
    max_runtime_seconds: int | None = None
    finish_within_seconds: int | None = None
    expected_runtime_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """A flavor to try, from some time on, on these clusters or on any."""

    flavor: str
    clusters: tuple[str, ...] = ()
    after_pending_seconds: int = 0


@dataclass(frozen=True, slots=True)
class PendingRule:
    """What to do once a workload has waited so long for a reason, or a class of them.

    `priority_class` and its value `priority` are those that Escalate raises the workload to.
    """

    reason: str
    after_seconds: int
    action: PendingAction
    priority_class: str = ""
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another workload that has to end first; `id` is empty while its name is not looked up."""

    condition: DependencyCondition
    name: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name and self.id else self.name or self.id


@dataclass(frozen=True, slots=True)
class S3Volume:
    """A prefix of a bucket as a folder of every container."""

    name: str
    bucket: str
    mount_path: str
    prefix: str = ""
    region: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """What rendering adds to pods on the tenant's behalf; user 0 is the image's own."""

    level: PodSecurity = PodSecurity.RESTRICTED
    run_as_user: int = 0
    service_account: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """The vetted options of a workload."""

    checkpoint: CheckpointPolicy | None = None
    recovery: RecoveryPolicy = RecoveryPolicy()
    max_recoveries: int | None = None
    deadlines: Deadlines = Deadlines()
    min_runtime_ms: int = 0
    preemptible: bool = True
    capacity: Capacity | None = None
    placement: tuple[PlacementRule, ...] = ()
    pending_policy: tuple[PendingRule, ...] = ()
    depends_on: tuple[Dependency, ...] = ()
    volumes: tuple[S3Volume, ...] = ()
    max_cost_cents: int | None = None
    security: SecuritySettings = SecuritySettings()
    wait_for_pods_ready: WaitForPodsReady | None = None

    @property
    def checkpoint_mode(self) -> CheckpointMode:
        return self.checkpoint.mode if self.checkpoint else CheckpointMode.NONE

    @property
    def checkpoint_signal(self) -> str:
        """The signal at which the application saves itself; empty: it listens to none."""
        return self.checkpoint.signal if self.checkpoint else ""

    @property
    def checkpoint_grace_seconds(self) -> int:
        """Older records may ask for more than a pod is given."""
        asked = (self.checkpoint.grace_seconds or 0) if self.checkpoint else 0
        return min(asked, MAX_GRACE_SECONDS)

    @property
    def checkpoint_interval_seconds(self) -> int:
        """How often it asks to be saved; 0: it leaves that to Sluice."""
        return (self.checkpoint.interval_seconds or 0) if self.checkpoint else 0


NO_OPTIONS: Final = Options()
