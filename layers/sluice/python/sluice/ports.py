"""What the use cases need from the outside, one small protocol per thing.

Adapters and fakes implement these; a use case sees nothing else. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.machine_sizes import MachineSize
from sluice.core.clusters.quarantine import Ban
from sluice.core.lifecycle.completion import Answer
from sluice.core.lifecycle.faults import Fault
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.indexes import Place
from sluice.core.lifecycle.inventory_row import Heartbeat, InventoryRow, MachineTotals
from sluice.core.lifecycle.record import Change, Workload
from sluice.core.migrations.checkpointing import Checkpoint, SaveFailure
from sluice.core.migrations.interruption import Notice
from sluice.core.migrations.losses import Loss
from sluice.core.migrations.migration import Migration, MigrationStep
from sluice.core.migrations.orphaned_archives import StoredArchive
from sluice.core.scheduling.past_usage import PastUsage

Document = dict[str, Any]
Usage = dict[str, dict[str, int]]
"""ClusterQueue → "flavor|resource" → amount in use (millicores, bytes, else counts)."""


class Clock(Protocol):
    def now(self) -> int: ...


class Created(Enum):
    """What became of a new record: an equal one counts as success, a different one does not."""

    NEW = "new"
    SAME = "same"
    DIFFERENT = "different"


class Workloads(Protocol):
    def get(self, workload_id: str) -> Workload | None:
        """One record, read consistently."""
        ...

    def get_many(self, ids: Iterable[str]) -> list[Workload]:
        """The existing ones of these records, read consistently, in the order of `ids`."""
        ...

    def create(self, workload: Workload) -> Created: ...

    def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Apply each change if its guard holds; False marks a lost race. Not atomic together."""
        ...

    def inbox(self, key: str, *, limit: int) -> list[str]:
        """Ids below an `inbox` key (workload: pending_key, release_key), in order; may lag."""
        ...

    def places(self, cq: str, *, limit: int, after: str = "") -> list[Place]:
        """Who waits in a ClusterQueue, in the order of `inbox`, without their records; may lag.

        `after` is the place (`Place.order`) to begin with, whether or not anybody is left there.
        """
        ...

    def active(self, cluster: str, root: str | None = None) -> list[str]:
        """Ids of workloads on a cluster, of one root cohort or all; may be stale."""
        ...

    def ran(self, queue: str, *, since: str, limit: int) -> list[str]:
        """Who of a LocalQueue has run and is on no cluster: `ran` keys from `since` on; may lag.

        A key is `<end of the last run, 13 digits>#<id>`; oldest first.
        """
        ...

    def listed(self, queue: str, *, since: int, limit: int) -> list[Workload]:
        """Workloads of a LocalQueue (`namespace/name`), newest first; may lag."""
        ...


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A workload before (None: it is new) and after a write, and when it was written (epoch ms)."""

    before: Workload | None
    after: Workload
    at: int


@dataclass(frozen=True, slots=True)
class LedgerState:
    """One root cohort's ledger as read; `limits`: the catalog version that a commit must match.

    `past`: the account of each LocalQueue while past usage counts; None: nobody keeps any.
    `spent`: budget → window → micro-dollars.
    """

    root: str
    version: int
    limits: int
    usage: Usage
    past: Mapping[str, PastUsage] | None = None
    spent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """One admission transaction: all of it happens, or none.

    `changes`: at most 97. `audit` is stored as the batch record of version + 1. `past` replaces
    the ledger's accounts; None ends them. So does `spent`.
    """

    based_on: LedgerState
    usage: Usage
    changes: tuple[Change, ...]
    audit: Mapping[str, Any]
    now: int
    past: Mapping[str, PastUsage] | None = None
    spent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """`done`, or why not: the ledger or its limits moved, or these workloads' guards failed."""

    done: bool
    moved: bool = False
    lost: frozenset[str] = frozenset()


MAX_CHANGES = 97


class Ledgers(Protocol):
    def read(self, root: str) -> LedgerState:
        """Consistent; a root without a ledger has version 0 and no usage."""
        ...

    def commit(self, commit: Commit) -> Committed: ...

    def record_pass(self, root: str, summary: Mapping[str, Any]) -> None:
        """Replace the summary of the newest pass (reasons, positions); best effort."""
        ...

    def newest_pass(self, root: str) -> Mapping[str, Any]: ...

    def batches(self, root: str, *, after: int = 0) -> Iterator[Mapping[str, Any]]:
        """Audit records with a version above `after`, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The applied objects by kind and name (`namespace/name` where namespaced)."""

    version: int
    documents: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)

    def of(self, kind: str) -> Mapping[str, Document]:
        return self.documents.get(kind, {})


@dataclass(frozen=True, slots=True)
class CatalogEdit:
    """Objects to put and to remove (kind, name), and the roots whose limits change by it.

    `empty` names ClusterQueues that must hold no quota in the ledger of the given root.
    """

    based_on: int
    put: tuple[tuple[str, str, Document], ...] = ()
    remove: tuple[tuple[str, str], ...] = ()
    roots: tuple[str, ...] = ()
    ledgers: tuple[tuple[str, int], ...] = ()


class Catalog(Protocol):
    def snapshot(self) -> CatalogSnapshot:
        """All objects at one version; kept between calls while the version stays."""
        ...

    def limits(self, root: str) -> int:
        """The version of a root's limits, read consistently; 0 before the first apply."""
        ...

    def edit(self, edit: CatalogEdit) -> bool:
        """All of it in one transaction, or False if the catalog or a named ledger moved."""
        ...


class Manifests(Protocol):
    def put_many(self, manifests: Mapping[str, Document]) -> None: ...

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]: ...

    def fetch(self, reference: str, sha256: str) -> bytes:
        """The document that a `manifestRef` names. Raises ManifestUnavailable."""
        ...


class TaskTokens(Protocol):
    """Tokens of Step Functions tasks, under the `task_key` of what was submitted with them."""

    def put(self, key: str, token: str) -> None: ...

    def of(self, key: str) -> list[tuple[str, int]]:
        """The tokens of a key, each with the time since when it lies there."""
        ...

    def forget(self, key: str, token: str) -> None: ...

    def keys(self, prefix: str) -> list[tuple[str, int]]:
        """The keys that begin so and have a token, each with the time of its oldest."""
        ...


class Tasks(Protocol):
    def answer(self, token: str, answer: Answer) -> str:
        """End the task of a token; "" if it took the answer, else AWS's word for why not.

        It may have ended before, or the token may be nonsense: both are answers.
        """
        ...


class Completions(Protocol):
    def look(self, keys: Iterable[str]) -> None:
        """Ask `complete` to look at the tokens of these keys; losing or repeating is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class News:
    """Where something happened: ClusterQueues and namespaces that are worth a look."""

    queues: frozenset[str]
    namespaces: frozenset[str]

    def __or__(self, other: News) -> News:
        return News(self.queues | other.queues, self.namespaces | other.namespaces)


class Kicks(Protocol):
    def kick(self, roots: Iterable[str], news: Mapping[str, News] | None = None) -> None:
        """Ask `admit` to look at these root cohorts; losing or repeating a kick is harmless.

        `news` says for a root where to look; a root without any is looked at as a whole.
        """
        ...


class Commands(Protocol):
    def send(self, cluster: str, ids: Sequence[str]) -> None:
        """Ask `act` to make the cluster match these workloads."""
        ...

    def steer(self, cluster: str) -> None:
        """Ask `act` to make the cluster's NodePools match their plans."""
        ...


class Provisions(Protocol):
    def ask(self, clusters: Iterable[str]) -> None:
        """Ask `provision` to look at these clusters; losing or repeating it is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up.

    `attributes` are SQS's own (SenderId, SentTimestamp in epoch ms, MessageGroupId); `said` is what
    the service that gave it up wrote on it, if it does such a thing.
    """

    id: str
    receipt: str = field(repr=False)
    body: str = field(repr=False)
    attributes: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)


class DeadLetters(Protocol):
    """The dead-letter queues, by the name of the queue whose messages end there."""

    def count(self, queue: str) -> int:
        """How many lie there, also those that somebody looks at; approximate."""
        ...

    def take(self, queue: str, *, hidden_seconds: int) -> list[DeadLetter]:
        """Up to ten that nobody else looks at; nobody else gets them for so long."""
        ...

    def give_back(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Let everybody see them again, at once."""
        ...

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> None: ...

    def purge(self, queue: str) -> None:
        """Delete all that lie there now; takes effect within a minute."""
        ...


@dataclass(frozen=True, slots=True)
class Handled:
    """`refused`: ids of the letters that were not dealt with; `why`, where that is known."""

    refused: frozenset[str] = frozenset()
    why: str = ""


class Consumers(Protocol):
    """The functions that take the messages of a queue."""

    def hand(self, queue: str, letters: Sequence[DeadLetter]) -> Handled:
        """Have the queue's own function take these letters as if SQS brought them."""
        ...


class Observers(Protocol):
    def wake(self, cluster: str) -> None:
        """Start observing a cluster now rather than at the next minute."""
        ...


class Timeline(Protocol):
    """What no record of a workload tells any more (`core.happenings.unrecorded`)."""

    def append(self, happenings: Sequence[Happening]) -> None: ...

    def append_together(self, groups: Iterable[Sequence[Happening]]) -> None:
        """The lines of a group are those of one change of one workload; they are one write."""
        ...

    def of(self, workload_id: str) -> list[Mapping[str, Any]]:
        """`{at, generation, what, message, detail}`, oldest first."""
        ...


class Faults(Protocol):
    def note(self, fault: Fault) -> None:
        """Keep it in place of the former one of the same function and subject."""
        ...

    def noted(self) -> list[Fault]: ...


class Bus(Protocol):
    def publish(self, happenings: Sequence[Happening]) -> None: ...


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    """Kubernetes already has an object of this name."""

    existing: Document


class Cluster(Protocol):
    """One Kubernetes cluster. Objects are plain documents; every method may raise ClusterError."""

    def create(self, document: Document) -> Document | AlreadyExists: ...

    def get(self, kind: str, namespace: str, name: str) -> Document | None: ...

    def list(
        self, kind: str, *, selector: str = "", field: str = "", namespace: str = ""
    ) -> tuple[list[Document], str]:
        """Documents and the resourceVersion of the list; without a namespace those of all."""
        ...

    def pages(
        self, kind: str, *, selector: str, keep: Callable[[Document], Document], field: str = ""
    ) -> Iterator[tuple[Sequence[Document], str]]:
        """The same by pages, of all namespaces; of each document only what `keep` leaves of it.

        An empty list is one empty page. Status 410 in between means: begin anew.
        """
        ...

    def apply(self, document: Document, *, manager: str) -> Document | None:
        """Server-side apply: `manager` owns just these fields and gives up its others.

        None if another manager owns one of them.
        """
        ...

    def patch(
        self, kind: str, namespace: str, name: str, patch: Document, *, status: bool = False
    ) -> Document | None:
        """Merge patch; None if the object or the preconditions in the patch do not match.

        With `status` it changes the object's status, and nothing else.
        """
        ...

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> bool:
        """Foreground deletion with UID precondition; True if it existed with that UID.

        `grace_seconds` 0 removes a pod at once: only where its machine is proven gone, or where
        nothing is lost.
        """
        ...

    def watch(
        self, kind: str, *, selector: str, version: str, seconds: float
    ) -> Iterator[tuple[str, Document]]:
        """(type, document) events; ends after `seconds` or when the server closes."""
        ...

    def logs(self, namespace: str, pod: str, container: str, *, limit_bytes: int) -> bytes: ...


class Clusters(Protocol):
    def cluster(self, name: str) -> Cluster: ...


class LogArchive(Protocol):
    def put(
        self, workload_id: str, generation: int, pod: str, container: str, log: bytes
    ) -> None: ...

    def put_if_absent(
        self, workload_id: str, generation: int, pod: str, container: str, log: bytes
    ) -> None:
        """Like `put`, but an archived log stays as it is."""
        ...

    def list(self, workload_id: str) -> list[str]:
        """`<generation>/<pod>/<container>` of every archived log."""
        ...

    def get(self, workload_id: str, generation: int, pod: str, container: str) -> bytes: ...


class Recordings(Protocol):
    """Recorded passes (recording), by root and the ledger version that they began to make."""

    def put(self, root: str, version: int, text: str) -> None: ...

    def get(self, root: str, version: int) -> str | None:
        """None where there is none, or not any more."""
        ...


class Nodes(Protocol):
    def put_many(self, cluster: str, nodes: Sequence[InventoryRow]) -> None: ...

    def of(self, cluster: str) -> list[InventoryRow]: ...

    def find(self, cluster: str, instance: str) -> InventoryRow | None: ...

    def put_heartbeat(self, heartbeat: Heartbeat) -> None: ...

    def heartbeats(self) -> list[Heartbeat]:
        """That of each cluster that has ever answered."""
        ...

    def put_totals(self, totals: MachineTotals) -> None: ...

    def totals(self) -> list[MachineTotals]:
        """Those of each cluster whose machines were counted."""
        ...


class Interruptions(Protocol):
    def send(self, envelope: Document) -> None:
        """Put a wish into the queue of EC2's notices, in their shape."""
        ...


class Offerings(Protocol):
    def banned(self, cluster: str) -> list[Ban]:
        """Every offering that was ever barred and is not forgotten; some bans may be over."""
        ...

    def ban(self, cluster: str, ban: Ban) -> None: ...


class Losses(Protocol):
    def record(self, cluster: str, loss: Loss) -> None:
        """Remember a lost machine; of one instance the first word counts."""
        ...

    def of(self, cluster: str) -> list[Loss]:
        """At least those of the last 30 days, in no order."""
        ...


class MachineSizes(Protocol):
    def matching(self, types: Sequence[str]) -> Sequence[MachineSize]:
        """How large the instance types of these globs are; none: nobody knows."""
        ...


class Pools(Protocol):
    def plans(self, cluster: str) -> list[PoolPlan]:
        """The newest plan of each NodePool; may lag."""
        ...

    def put(self, cluster: str, plans: Sequence[PoolPlan]) -> None:
        """Replace the plans of a cluster, all at once."""
        ...


class Migrations(Protocol):
    def note(self, key: str, notice: Notice) -> bool:
        """Remember a notice by its key; False if it was known."""
        ...

    def create(self, migration: Migration) -> Migration:
        """Store the record unless there is one; the one that counts."""
        ...

    def get(self, migration_id: str) -> Migration | None: ...

    def apply(self, steps: Sequence[MigrationStep]) -> list[bool]:
        """Apply each step if the record is in one of its stages. Not atomic together."""
        ...

    def checkpoints(self, workload_id: str) -> list[Checkpoint]:
        """The catalogue of a workload, in no order."""
        ...

    def keep(self, checkpoint: Checkpoint, *, retain: int, pinned: str = "") -> None:
        """Enter a complete checkpoint; only the newest `retain` stay listed.

        And the one with the source `pinned`, from which the present run may have to start again.
        """
        ...

    def fail(self, workload_id: str, source: str, generation: int, why: str) -> None:
        """A generation could not start from a checkpoint; told again, it changes nothing."""
        ...

    def refuse(self, workload_id: str, failure: SaveFailure) -> None:
        """It could not be saved; counts until a later checkpoint is entered."""
        ...

    def refused(self, workload_id: str) -> SaveFailure | None:
        """Why it could not be saved, if the last try failed."""
        ...

    def drop(self, workload_id: str) -> None:
        """Every archive of a workload is to go; its checkpoints stay listed as removed."""
        ...

    def dropped(self, workload_id: str) -> list[Checkpoint]:
        """Those that left the list and whose archives are not known to be removed yet."""
        ...

    def forget(self, workload_id: str, checkpoints: Sequence[Checkpoint]) -> None:
        """Their archives are removed."""
        ...


@dataclass(frozen=True, slots=True)
class Archive:
    """The stored archive of a checkpoint: bytes, and how S3 says that it is encrypted."""

    size: int
    encryption: str


class Archives(Protocol):
    def look(self, checkpoint: Checkpoint) -> Archive | None:
        """None if there is no such archive any more. Raises SluiceError."""
        ...

    def remove(self, checkpoint: Checkpoint) -> None:
        """Archive and image; what is gone already counts as removed. Raises SluiceError."""
        ...

    def stored(self, ids: str) -> Iterable[StoredArchive]:
        """All archives of workloads whose ids begin so. Raises SluiceError."""
        ...

    def discard(self, uri: str) -> None:
        """One archive; one that is gone counts as removed. Raises SluiceError."""
        ...


class CheckpointReconciler(Protocol):
    """Carries orders and answers between the pods of a workload and a driver's service."""

    def __call__(self, name: str, cluster: Cluster, workload: Workload) -> None:
        """May raise CheckpointServiceError or ClusterError; the next look goes on from there."""
        ...


class Prices(Protocol):
    def hourly(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """Dollars per hour; None if nobody knows."""
        ...


class Machines(Protocol):
    def ended(self, instances: Sequence[str]) -> list[Document]:
        """For each of these instances that has ended: EC2's event of it, which may never have come.

        An instance that nobody knows counts as running.
        """
        ...

    def clusters_of(self, instances: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """The clusters whose nodes these instances are by their tags; not of those EC2 leaves out.

        EC2 leaves out what it does not know, and everything when it does not answer.
        """
        ...


class Leases(Protocol):
    def take(self, name: str, owner: str, *, until: int) -> int:
        """Become the owner, whoever it was before; the former one fails to renew.

        Returns up to when owners have `done` their work, as they said; 0 if none did.
        """
        ...

    def acquire(self, name: str, owner: str, *, now: int, until: int, done: int = 0) -> bool:
        """Take or renew a lease; only saves work, never makes anything safe."""
        ...
