"""In-memory ports: the same contract as the adapters (tests/contract), for unit tests.

`Memory` holds what DynamoDB would, with guards and transactions checked atomically.
"""

from __future__ import annotations

import builtins
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.inventory import as_counted
from sluice.core.clusters.machine_sizes import MachineSize
from sluice.core.clusters.quarantine import Ban
from sluice.core.jobs import gang_start
from sluice.core.lifecycle.completion import Answer
from sluice.core.lifecycle.faults import Fault
from sluice.core.lifecycle.happenings import Happening, as_line, in_order
from sluice.core.lifecycle.indexes import Place, index_keys, pending_key, place_of
from sluice.core.lifecycle.inventory_row import Heartbeat, InventoryRow, MachineTotals
from sluice.core.lifecycle.record import Change, State, Workload, after
from sluice.core.migrations.checkpointing import Checkpoint, CheckpointEntries, SaveFailure
from sluice.core.migrations.cpu_compatibility import GENERATION, MANUFACTURER
from sluice.core.migrations.interruption import Notice
from sluice.core.migrations.losses import Loss
from sluice.core.migrations.migration import Migration, MigrationStep
from sluice.core.migrations.orphaned_archives import StoredArchive
from sluice.errors import ManifestUnavailable, SluiceError
from sluice.ports import (
    AlreadyExists,
    Archive,
    CatalogEdit,
    CatalogSnapshot,
    Commit,
    Committed,
    Created,
    DeadLetter,
    Document,
    Handled,
    LedgerState,
    News,
)


@dataclass
class CrashError(Exception):
    """The process ends here: nothing after this call happens."""


class InlineExecutor(ThreadPoolExecutor):
    """A pool without threads, so that a run is a function of its seed."""

    def map(self, fn: Any, *iterables: Any, **_: Any) -> Any:
        return [fn(*items) for items in zip(*iterables, strict=False)]

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        try:
            done.set_result(fn(*args, **kwargs))
        except CrashError:
            raise
        except Exception as error:  # noqa: BLE001, as a thread would
            done.set_exception(error)
        return done


class FakeClock:
    time: int = 1_800_000_000_000

    def now(self) -> int:
        return self.time

    def pass_ms(self, ms: int) -> None:
        self.time += ms


@dataclass
class MemoryWorkloads:
    """`changed` hears every write as (before, after), like a stream."""

    rows: dict[str, Workload] = field(default_factory=dict)
    changed: list[tuple[Workload | None, Workload]] = field(default_factory=list)

    def write(self, workload: Workload) -> None:
        self.changed.append((self.rows.get(workload.id), workload))
        self.rows[workload.id] = workload

    def get(self, workload_id: str) -> Workload | None:
        return self.rows.get(workload_id)

    def get_many(self, ids: Iterable[str]) -> list[Workload]:
        return [self.rows[i] for i in dict.fromkeys(ids) if i in self.rows]

    def create(self, workload: Workload) -> Created:
        existing = self.rows.get(workload.id)
        if existing is None or existing.state is State.REJECTED:
            self.write(workload)
            return Created.NEW
        return Created.SAME if existing.digest == workload.digest else Created.DIFFERENT

    def apply(self, changes: Sequence[Change]) -> list[bool]:
        return [self._apply(change) for change in changes]

    def _apply(self, change: Change) -> bool:
        now = self.rows.get(change.before.id)
        if now is None or not change.guard.holds(now):
            return False
        self.write(after(change, now))
        return True

    def inbox(self, key: str, *, limit: int) -> list[str]:
        found = [
            (keys["inbox_order"], w.id)
            for w in self.rows.values()
            if (keys := index_keys(w)).get("inbox") == key
        ]
        return [workload_id for _, workload_id in sorted(found)][:limit]

    def places(self, cq: str, *, limit: int, after: str = "") -> list[Place]:
        names = self.inbox(pending_key(cq), limit=len(self.rows))
        orders = [index_keys(self.rows[name])["inbox_order"] for name in names]
        return [place_of(order) for order in orders if order >= after][:limit]

    def active(self, cluster: str, root: str | None = None) -> list[str]:
        found = [
            (keys["active_order"], w.id)
            for w in self.rows.values()
            if (keys := index_keys(w)).get("active") == cluster and root in (None, w.root)
        ]
        return [workload_id for _, workload_id in sorted(found)]

    def ran(self, queue: str, *, since: str, limit: int) -> list[str]:
        keys = [index_keys(w).get("ran", "") for w in self.rows.values() if w.queue == queue]
        return sorted(key for key in keys if key and key >= since)[:limit]

    def listed(self, queue: str, *, since: int, limit: int) -> list[Workload]:
        found = [w for w in self.rows.values() if w.queue == queue and w.created_at >= since]
        return sorted(found, key=lambda w: (w.created_at, w.id), reverse=True)[:limit]


@dataclass
class MemoryLedgers:
    workloads: MemoryWorkloads
    catalog: MemoryCatalog
    ledgers: dict[str, LedgerState] = field(default_factory=dict)
    audits: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    passes: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def read(self, root: str) -> LedgerState:
        kept = self.ledgers.get(root, LedgerState(root, 0, 0, {}))
        limits = self.catalog.limits(root)
        return LedgerState(root, kept.version, limits, kept.usage, kept.past, kept.spent)

    def commit(self, commit: Commit) -> Committed:
        root = commit.based_on.root
        now = self.read(root)
        moved = (now.version, now.limits) != (commit.based_on.version, commit.based_on.limits)
        lost = frozenset(
            change.before.id
            for change in commit.changes
            if (row := self.workloads.get(change.before.id)) is None or not change.guard.holds(row)
        )
        if moved or lost:
            return Committed(done=False, moved=moved, lost=lost)
        version = now.version + 1
        self.ledgers[root] = LedgerState(
            root, version, now.limits, commit.usage, commit.past, commit.spent
        )
        entry = {"version": version, "at": commit.now, **commit.audit}
        self.audits.setdefault(root, []).append(entry)
        self.workloads.apply(commit.changes)
        return Committed(done=True)

    def record_pass(self, root: str, summary: Mapping[str, Any]) -> None:
        self.passes[root] = summary

    def newest_pass(self, root: str) -> Mapping[str, Any]:
        return self.passes.get(root, {})

    def batches(self, root: str, *, after: int = 0) -> Iterator[Mapping[str, Any]]:
        return (row for row in self.audits.get(root, []) if row["version"] > after)


class RejectingLedgers(MemoryLedgers):
    """Loses every race, so that the retry path can be seen."""

    def commit(self, commit: Commit) -> Committed:
        assert commit
        return Committed(done=False, moved=True)


@dataclass
class MemoryCatalog:
    kept: CatalogSnapshot = field(default_factory=lambda: CatalogSnapshot(0))
    roots: dict[str, int] = field(default_factory=dict)
    ledgers: MemoryLedgers | None = None

    def snapshot(self) -> CatalogSnapshot:
        return self.kept

    def limits(self, root: str) -> int:
        return self.roots.get(root, 0)

    def edit(self, edit: CatalogEdit) -> bool:
        if edit.based_on != self.kept.version:
            return False
        for root, version in edit.ledgers:
            if self.ledgers is None or self.ledgers.read(root).version != version:
                return False
        documents = {kind: dict(named) for kind, named in self.kept.documents.items()}
        for kind, name, document in edit.put:
            documents.setdefault(kind, {})[name] = document
        for kind, name in edit.remove:
            documents.get(kind, {}).pop(name, None)
        self.kept = CatalogSnapshot(self.kept.version + 1, documents)
        for root in edit.roots:
            self.roots[root] = self.roots.get(root, 0) + 1
        return True


@dataclass
class MemoryManifests:
    rows: dict[str, Document] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)

    def put_many(self, manifests: Mapping[str, Document]) -> None:
        self.rows = {**manifests, **self.rows}  # what is stored stays as it is

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        return {i: self.rows[i] for i in ids if i in self.rows}

    def fetch(self, reference: str, sha256: str) -> bytes:
        if reference not in self.objects:
            raise ManifestUnavailable(f"cannot read {reference}")
        body = self.objects[reference]
        if hashlib.sha256(body).hexdigest() != sha256:
            raise ManifestUnavailable(f"{reference} has another sha256 than {sha256}")
        return body


@dataclass
class MemoryTaskTokens:
    clock: FakeClock = field(default_factory=FakeClock)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)

    def put(self, key: str, token: str) -> None:
        self.rows[key, token] = self.clock.now()

    def of(self, key: str) -> list[tuple[str, int]]:
        return [(token, since) for (of, token), since in self.rows.items() if of == key]

    def forget(self, key: str, token: str) -> None:
        self.rows.pop((key, token), None)

    def keys(self, prefix: str) -> list[tuple[str, int]]:
        found: dict[str, int] = {}
        for (key, _), since in self.rows.items():
            if key.startswith(prefix):
                found[key] = min(since, found.get(key, since))
        return list(found.items())


@dataclass
class FakeTasks:
    """Step Functions: tasks that wait, and what the others were told."""

    waiting: set[str] = field(default_factory=set)
    told: dict[str, Answer] = field(default_factory=dict)

    def answer(self, token: str, answer: Answer) -> str:
        if token not in self.waiting:
            return "TaskTimedOut" if token in self.told else "InvalidToken"
        self.waiting.remove(token)
        self.told[token] = answer
        return ""


@dataclass
class RecordedCompletions:
    keys: list[str] = field(default_factory=list)

    def look(self, keys: Iterable[str]) -> None:
        self.keys += keys


@dataclass
class RecordedKicks:
    roots: list[str] = field(default_factory=list)
    news: list[Mapping[str, News]] = field(default_factory=list)

    def kick(self, roots: Iterable[str], news: Mapping[str, News] | None = None) -> None:
        self.roots += roots
        self.news.append(news or {})


@dataclass
class RecordedCommands:
    sent: list[tuple[str, list[str]]] = field(default_factory=list)
    steered: list[str] = field(default_factory=list)

    def send(self, cluster: str, ids: Sequence[str]) -> None:
        self.sent.append((cluster, list(ids)))

    def steer(self, cluster: str) -> None:
        self.steered.append(cluster)


@dataclass
class RecordedProvisions:
    asked: list[str] = field(default_factory=list)

    def ask(self, clusters: Iterable[str]) -> None:
        self.asked += dict.fromkeys(clusters)


@dataclass
class RecordedInterruptions:
    sent: list[Document] = field(default_factory=list)

    def send(self, envelope: Document) -> None:
        self.sent.append(envelope)


@dataclass
class RecordedTimeline:
    lines: list[Happening] = field(default_factory=list)
    rows: int = 0

    def append(self, happenings: Sequence[Happening]) -> None:
        self.append_together([each] for each in happenings)

    def publish(self, happenings: Sequence[Happening]) -> None:
        self.lines += happenings

    def append_together(self, groups: Iterable[Sequence[Happening]]) -> None:
        for group in groups:
            self.lines += group
            self.rows += 1

    def of(self, workload_id: str) -> list[Mapping[str, Any]]:
        lines = {
            (line.at, line.workload.generation, line.what): as_line(line)
            for line in self.lines
            if line.workload.id == workload_id
        }
        return in_order(lines.values())


@dataclass
class MemoryDeadLetters:
    """Queues of letters; those taken are hidden until they are given back or time has passed."""

    clock: FakeClock
    queues: dict[str, list[DeadLetter]] = field(default_factory=dict)
    hidden: dict[str, int] = field(default_factory=dict)

    def count(self, queue: str) -> int:
        return len(self.queues.get(queue, ()))

    def take(self, queue: str, *, hidden_seconds: int) -> list[DeadLetter]:
        now = self.clock.now()
        lying = self.queues.get(queue, ())
        seen = [each for each in lying if self.hidden.get(each.id, 0) <= now][:10]
        self.hidden |= {each.id: now + hidden_seconds * 1_000 for each in seen}
        return seen

    def give_back(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        del queue
        self.hidden |= {each.id: 0 for each in letters}

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        gone = {each.id for each in letters}
        self.queues[queue] = [e for e in self.queues.get(queue, ()) if e.id not in gone]

    def purge(self, queue: str) -> None:
        self.queues[queue] = []


@dataclass
class FakeConsumers:
    """Functions that take what they get; letters with an id in `refusing` stay."""

    handed: list[tuple[str, DeadLetter]] = field(default_factory=list)
    refusing: set[str] = field(default_factory=set)
    why: str = ""

    def hand(self, queue: str, letters: Sequence[DeadLetter]) -> Handled:
        self.handed += [(queue, each) for each in letters if each.id not in self.refusing]
        refused = frozenset(each.id for each in letters) & self.refusing
        return Handled(refused, self.why if refused else "")


@dataclass
class RecordedObservers:
    woken: list[str] = field(default_factory=list)

    def wake(self, cluster: str) -> None:
        self.woken.append(cluster)


@dataclass
class MemoryFaults:
    rows: dict[tuple[str, str], Fault] = field(default_factory=dict)

    def note(self, fault: Fault) -> None:
        self.rows[fault.function, fault.subject] = fault

    def noted(self) -> list[Fault]:
        return list(self.rows.values())


@dataclass
class MemoryMachines:
    """EC2's events of the instances that have ended."""

    ends: dict[str, Document] = field(default_factory=dict)
    tagged: dict[str, frozenset[str]] = field(default_factory=dict)
    """Instance → the clusters that its tags name."""

    def ended(self, instances: Sequence[str]) -> list[Document]:
        return [self.ends[instance] for instance in instances if instance in self.ends]

    def clusters_of(self, instances: Sequence[str]) -> dict[str, frozenset[str]]:
        return {each: self.tagged[each] for each in instances if each in self.tagged}


@dataclass
class MemoryNodes:
    rows: dict[str, dict[str, InventoryRow]] = field(default_factory=dict)
    beats: dict[str, Heartbeat] = field(default_factory=dict)
    sums: dict[str, MachineTotals] = field(default_factory=dict)

    def put_many(self, cluster: str, nodes: Sequence[InventoryRow]) -> None:
        self.rows.setdefault(cluster, {}).update({node.instance: node for node in nodes})

    def of(self, cluster: str) -> list[InventoryRow]:
        return as_counted(self.rows.get(cluster, {}).values())

    def put_totals(self, totals: MachineTotals) -> None:
        self.sums[totals.instance] = totals

    def totals(self) -> list[MachineTotals]:
        return list(self.sums.values())

    def find(self, cluster: str, instance: str) -> InventoryRow | None:
        return self.rows.get(cluster, {}).get(instance)

    def put_heartbeat(self, heartbeat: Heartbeat) -> None:
        self.beats[heartbeat.instance] = heartbeat

    def heartbeats(self) -> list[Heartbeat]:
        return list(self.beats.values())


@dataclass
class MemoryOfferings:
    rows: dict[str, dict[str, Ban]] = field(default_factory=dict)

    def banned(self, cluster: str) -> list[Ban]:
        return list(self.rows.get(cluster, {}).values())

    def ban(self, cluster: str, ban: Ban) -> None:
        self.rows.setdefault(cluster, {})[ban.offering.key] = ban


@dataclass
class MemoryPools:
    rows: dict[str, list[PoolPlan]] = field(default_factory=dict)

    def plans(self, cluster: str) -> list[PoolPlan]:
        return self.rows.get(cluster, [])

    def put(self, cluster: str, plans: Sequence[PoolPlan]) -> None:
        self.rows[cluster] = list(plans)


@dataclass
class MemoryLosses:
    rows: dict[tuple[str, str], Loss] = field(default_factory=dict)

    def record(self, cluster: str, loss: Loss) -> None:
        self.rows.setdefault((cluster, loss.instance), loss)

    def of(self, cluster: str) -> list[Loss]:
        return [loss for (where, _), loss in self.rows.items() if where == cluster]


@dataclass
class MemoryMigrations:
    notices: dict[str, Notice] = field(default_factory=dict)
    rows: dict[str, Migration] = field(default_factory=dict)
    catalogue: dict[str, CheckpointEntries] = field(default_factory=dict)

    def note(self, key: str, notice: Notice) -> bool:
        known = key in self.notices
        self.notices.setdefault(key, notice)
        return not known

    def create(self, migration: Migration) -> Migration:
        known = self.rows.get(migration.id)
        if known is None or known.called_off:
            self.rows[migration.id] = migration
        return self.rows[migration.id]

    def get(self, migration_id: str) -> Migration | None:
        return self.rows.get(migration_id)

    def apply(self, steps: Sequence[MigrationStep]) -> list[bool]:
        return [self._apply(step) for step in steps]

    def _apply(self, step: MigrationStep) -> bool:
        now = self.rows.get(step.before.id)
        if now is None or not step.holds(now):
            return False
        self.rows[now.id] = step.after(now)
        return True

    def checkpoints(self, workload_id: str) -> list[Checkpoint]:
        return list(self.catalogue.get(workload_id, CheckpointEntries()).kept)

    def dropped(self, workload_id: str) -> list[Checkpoint]:
        return list(self.catalogue.get(workload_id, CheckpointEntries()).dropped)

    def keep(self, checkpoint: Checkpoint, *, retain: int, pinned: str = "") -> None:
        old = self.catalogue.get(checkpoint.workload, CheckpointEntries())
        self.catalogue[checkpoint.workload] = old.keep(checkpoint, retain, pinned)

    def fail(self, workload_id: str, source: str, generation: int, why: str) -> None:
        old = self.catalogue.get(workload_id, CheckpointEntries())
        self.catalogue[workload_id] = old.fail(source, generation, why)

    def refuse(self, workload_id: str, failure: SaveFailure) -> None:
        old = self.catalogue.get(workload_id, CheckpointEntries())
        self.catalogue[workload_id] = old.refuse(failure)

    def refused(self, workload_id: str) -> SaveFailure | None:
        return self.catalogue.get(workload_id, CheckpointEntries()).refused

    def drop(self, workload_id: str) -> None:
        self.catalogue[workload_id] = self.catalogue.get(workload_id, CheckpointEntries()).drop()

    def forget(self, workload_id: str, checkpoints: Sequence[Checkpoint]) -> None:
        old = self.catalogue.get(workload_id, CheckpointEntries())
        self.catalogue[workload_id] = old.forget(checkpoints)


@dataclass
class MemoryArchives:
    """Archives by URI; `broken` ones cannot be removed."""

    rows: dict[str, Archive] = field(default_factory=dict)
    bucket: list[StoredArchive] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def look(self, checkpoint: Checkpoint) -> Archive | None:
        return self.rows.get(checkpoint.uri)

    def remove(self, checkpoint: Checkpoint) -> None:
        if checkpoint.uri in self.broken:
            raise SluiceError(f"{checkpoint.uri} cannot be removed")
        self.rows.pop(checkpoint.uri, None)
        self.removed.append(checkpoint.source)

    def stored(self, ids: str) -> list[StoredArchive]:
        return [each for each in self.bucket if each.workload.startswith(ids)]

    def discard(self, uri: str) -> None:
        self.bucket = [each for each in self.bucket if each.uri != uri]
        self.removed.append(uri)


@dataclass
class FixedSizes:
    """Instance types as EC2 tells them; empty: it does not."""

    sizes: tuple[MachineSize, ...] = ()

    def matching(self, types: Sequence[str]) -> Sequence[MachineSize]:
        return [size for size in self.sizes if any(fnmatch(size.type, each) for each in types)]


@dataclass
class FixedPrices:
    price: float | None = 1.0

    def hourly(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        assert isinstance(instance_type + zone + capacity_type, str)
        return self.price


@dataclass
class MemoryLogs:
    rows: dict[str, bytes] = field(default_factory=dict)

    def put(self, workload_id: str, generation: int, pod: str, container: str, log: bytes) -> None:
        self.rows[f"{workload_id}/{generation}/{pod}/{container}"] = log

    def put_if_absent(
        self, workload_id: str, generation: int, pod: str, container: str, log: bytes
    ) -> None:
        if f"{generation}/{pod}/{container}" not in self.list(workload_id):
            self.put(workload_id, generation, pod, container, log)

    def list(self, workload_id: str) -> builtins.list[str]:
        prefix = f"{workload_id}/"
        return [key.removeprefix(prefix) for key in self.rows if key.startswith(prefix)]

    def get(self, workload_id: str, generation: int, pod: str, container: str) -> bytes:
        return self.rows[f"{workload_id}/{generation}/{pod}/{container}"]


@dataclass
class MemoryRecordings:
    texts: dict[tuple[str, int], str] = field(default_factory=dict)

    def put(self, root: str, version: int, text: str) -> None:
        self.texts[root, version] = text

    def get(self, root: str, version: int) -> str | None:
        return self.texts.get((root, version))


@dataclass
class MemoryLeases:
    held: dict[str, tuple[str, int]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, owner: str, *, until: int) -> int:
        self.held[name] = (owner, until)
        return self.done.get(name, 0)

    def acquire(self, name: str, owner: str, *, now: int, until: int, done: int = 0) -> bool:
        holder, expires = self.held.get(name, ("", 0))
        if holder != owner and expires >= now:
            return False
        self.held[name], self.done[name] = (owner, until), done
        return True


_KNOBS = ("limits", "weight")


def _at(document: Document, path: Sequence[str]) -> Any:
    inner: Any = document
    for name in path:
        inner = inner.get(name, {})
    return inner


def _has_field(document: Document, term: str) -> bool:
    """Whether a document has what one term of a field selector asks, `a.b=c` or `a.b!=c`."""
    name, unequal, value = term.partition("!=")
    if not unequal:
        name, _, value = term.partition("=")
    return (str(_at(document, name.split(".")) or "") == value) is not bool(unequal)


def _has_labels(labels: Document, selector: str) -> bool:
    """Of label selectors: `a`, `a=b` and `a in (b,c)`."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        name, several, values = term.partition(" in ")
        if several:
            if labels.get(name) not in values.strip("()").split(","):
                return False
            continue
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    return True


def _as_expected(wanted: Document, found: Document) -> bool:
    """Whether the preconditions in a patch's metadata hold."""
    return all(
        wanted.get(name, found.get(name)) == found.get(name) for name in ("uid", "resourceVersion")
    )


def _merge(found: Document, patch: Document) -> Document:
    """A JSON merge patch."""
    made = dict(found)
    for name, value in patch.items():
        old = made.get(name)
        made[name] = _merge(old or {}, value) if isinstance(value, dict) else value
    return {name: value for name, value in made.items() if value is not None}


def _merged(found: Document, patch: Document) -> Document:
    marks = {**found.get("annotations", {}), **patch.get("annotations", {})}
    merged = {**found, "annotations": {n: text for n, text in marks.items() if text is not None}}
    if "labels" in patch:
        merged["labels"] = {**found.get("labels", {}), **patch["labels"]}
    if "finalizers" in patch:
        merged["finalizers"] = patch["finalizers"]
    return merged


@dataclass
class FakeKubernetes:
    """A cluster of Jobs, Pods and Nodes with UIDs, preconditions and foreground deletion.

    `finish` plays the Job controller; pods exist from the un-suspension on. `vanish` plays EC2: the
    pods of a machine that is gone stay in the API until someone removes them.
    """

    objects: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    started: builtins.list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    lingers: Callable[[], bool] = lambda: False
    """Whether the pod of a Job that is deleted now fails at once, and the Job is seen Failed."""
    page: int = 500
    damaged: set[str] = field(default_factory=set)
    restore_error: str = "criu restore failed"
    """Checkpoints from which no container starts: its Job fails, as with `backoffLimit: 0`."""

    def create(self, document: Document) -> Document | AlreadyExists:
        metadata = document["metadata"]
        key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
        if key in self.objects:
            return AlreadyExists(self.objects[key])
        number = next(self.numbers)
        given = {"uid": f"uid-{number}", "resourceVersion": str(number)}
        made = {**document, "metadata": {**metadata, **given}}
        if document["kind"] == "Pod":
            made.setdefault("status", {"phase": "Pending"})
        self.objects[key] = made
        if document["kind"] == "ConfigMap":
            self._start_held(made)
        return made

    def _start_held(self, config_map: Document) -> None:
        """The kubelets: containers that read the ConfigMap start, where their pods are bound."""
        of = config_map["metadata"]["labels"]["sluice.dev/workload"]
        for key, pod in list(self.objects.items()):
            mine = key[0] == "Pod" and pod["metadata"]["labels"].get("sluice.dev/workload") == of
            bound = mine and bool(pod["spec"].get("nodeName"))
            if bound and pod["status"]["phase"] == "Pending" and not self._is_held(pod):
                self.objects[key] = {**pod, "status": self._status_of(pod)}
                if job := self._job_of(pod):
                    self._count(key[1], job["metadata"]["name"])

    def _is_held(self, pod: Document) -> bool:
        """Whether its node waits for the ConfigMap of its gang, of which there is none yet."""
        labels = pod["metadata"].get("labels") or {}
        if INDEX not in labels or not gang_start.size_of([pod]):
            return False
        (name,) = gang_start.group([pod])
        found = self.objects.get(("ConfigMap", pod["metadata"]["namespace"], name))
        job = self._job_of(pod)
        owners = found["metadata"]["ownerReferences"] if found else ()
        return not any(job and owner["uid"] == job["metadata"]["uid"] for owner in owners)

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        return self.objects.get((kind, namespace, name))

    def list(
        self, kind: str, *, selector: str = "", field: str = "", namespace: str = ""
    ) -> tuple[builtins.list[Document], str]:
        found = [
            each
            for (of_kind, of_namespace, _), each in self.objects.items()
            if of_kind == kind
            and namespace in ("", of_namespace)
            and all(_has_field(each, term) for term in field.split(",") if term)
            and _has_labels(each["metadata"].get("labels") or {}, selector)
        ]
        return found, "1"

    def pages(
        self, kind: str, *, selector: str, keep: Callable[[Document], Document], field: str = ""
    ) -> Iterator[tuple[Sequence[Document], str]]:
        found, version = self.list(kind, selector=selector, field=field)
        for first in range(0, max(1, len(found)), self.page):
            yield [keep(each) for each in found[first : first + self.page]], version

    def apply(self, document: Document, *, manager: str) -> Document | None:
        """What others own is left out of this fake: it is the business of the API server."""
        key = (document["kind"], "", document["metadata"]["name"])
        found = self.objects[key]
        spec = {
            **{name: each for name, each in found["spec"].items() if name not in _KNOBS},
            **document.get("spec", {}),
        }
        owned = {"f:limits": {"f:cpu": {}}} if "limits" in spec else {}
        fields = [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": owned}}]
        metadata = {**found["metadata"], "managedFields": fields}
        self.objects[key] = {**found, "metadata": metadata, "spec": spec}
        return self.objects[key]

    def patch(
        self, kind: str, namespace: str, name: str, patch: Document, *, status: bool = False
    ) -> Document | None:
        found = self.get(kind, namespace, name)
        metadata = patch.get("metadata", {})
        if found is None or not _as_expected(metadata, found["metadata"]):
            return None
        if status:
            now = {k: v for k, v in (found["status"] | patch["status"]).items() if v is not None}
            self.objects[kind, namespace, name] = {**found, "status": now}
            return self.objects[kind, namespace, name]
        stops = kind == "Job" and patch.get("spec", {}).get("suspend") is True
        spec = _merge(found.get("spec", {}), patch.get("spec", {}))
        if kind == "Job" and found["spec"].get("suspend") and not spec["suspend"]:
            self.started.append(name)
            found = {**found, "status": {"startTime": "now"}}
            for index in range(members(found)):
                self._add_pod(found, index)
        kept = _merged(found["metadata"], metadata)
        kept["resourceVersion"] = str(next(self.numbers))
        made = {**found, "metadata": kept, "spec": spec}
        if kind == "Pod" and found["spec"].get("schedulingGates") and not spec["schedulingGates"]:
            made = self._scheduled(made)
        self.objects[kind, namespace, name] = made
        if stops:
            self._suspend(made)
        if kind == "Job" and not spec["suspend"]:
            self._count(namespace, name)
        if kind == "Pod" and (job := self._job_of(made)):
            self._adopt(job, made)
            self._count(namespace, job["metadata"]["name"])
        if kept.get("deletionTimestamp") and not kept.get("finalizers") and kind == "Pod":
            self._remove_pod(namespace, name)
            return made
        return self.objects[kind, namespace, name]

    def _suspend(self, job: Document) -> None:
        """The Job controller ends the pods of a suspended Job, and says so."""
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        for pod in self._pods_of(namespace, name):
            self._remove_pod(namespace, pod["metadata"]["name"])
        said = {"conditions": [{"type": "Suspended", "status": "True"}], "startTime": "then"}
        self.objects["Job", namespace, name] = {**job, "status": said}

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> bool:
        found = self.get(kind, namespace, name)
        if found is None or (uid and found["metadata"]["uid"] != uid):
            return False
        if kind == "Pod":
            owned = found["metadata"].get("ownerReferences")
            assert grace_seconds in (0, 1) or not owned, "nobody else deletes pods"
            self._remove_pod(namespace, name)
            return True
        pods = self._pods_of(namespace, name) if kind == "Job" else []
        if any(pod["spec"].get("nodeName") in self.dead for pod in pods):
            deleted = {**found["metadata"], "deletionTimestamp": "now"}
            self.objects[kind, namespace, name] = {**found, "metadata": deleted}
            for pod in pods:
                if pod["spec"].get("nodeName") not in self.dead:
                    del self.objects["Pod", namespace, pod["metadata"]["name"]]
            return True  # the Job waits for a pod of whose end nobody reports
        if any(pod["status"]["phase"] == "Running" for pod in pods) and self.lingers():
            self.finish(namespace, name, exit_code=143)
            failed = self.objects[kind, namespace, name]
            deleted = {**failed["metadata"], "deletionTimestamp": "now"}
            self.objects[kind, namespace, name] = {**failed, "metadata": deleted}
            return True
        deleted = {**found["metadata"], "deletionTimestamp": "now"}
        self.objects[kind, namespace, name] = {**found, "metadata": deleted}
        for pod in pods:
            self._remove_pod(namespace, pod["metadata"]["name"])
        if not self._pods_of(namespace, name):
            self.objects.pop((kind, namespace, name), None)
        return True

    def collect(self) -> None:
        """The garbage collector removes deleted Jobs whose pods have ended."""
        for (kind, namespace, name), each in list(self.objects.items()):
            pods = self._pods_of(namespace, name)
            ended = all(
                pod["status"]["phase"] in ("Succeeded", "Failed")
                and not pod["metadata"].get("finalizers")
                for pod in pods
            )
            if kind == "Job" and each["metadata"].get("deletionTimestamp") and ended:
                for pod in pods:
                    del self.objects["Pod", namespace, pod["metadata"]["name"]]
                del self.objects[kind, namespace, name]

    def watch(
        self, kind: str, *, selector: str, version: str, seconds: float
    ) -> Iterator[tuple[str, Document]]:
        assert kind
        assert selector
        assert version
        assert seconds
        return iter(())

    def logs(self, namespace: str, pod: str, container: str, *, limit_bytes: int) -> bytes:
        assert limit_bytes
        return f"{namespace}/{pod}/{container} says hello\n".encode()

    def cluster(self, name: str) -> FakeKubernetes:
        assert name
        return self

    def running(self) -> builtins.list[str]:
        """The workload of every run that really runs; the members of a gang are one run."""
        pods = [
            each["metadata"]["labels"]
            for (kind, namespace, _), each in self.objects.items()
            if kind == "Pod"
            and namespace != "sluice-system"
            and each["status"]["phase"] == "Running"
            and each["spec"]["nodeName"] not in self.dead
        ]
        members = Counter(
            (pod["sluice.dev/workload"], pod["sluice.dev/generation"], pod.get(INDEX))
            for pod in pods
        )
        runs = Counter[tuple[str, str]]()
        for (workload, generation, _), copies in members.items():
            runs[workload, generation] = max(runs[workload, generation], copies)
        return [workload for (workload, _), copies in runs.items() for _ in range(copies)]

    def finish(self, namespace: str, name: str, *, exit_code: int = 0) -> None:
        job = self.objects["Job", namespace, name]
        done = "Complete" if exit_code == 0 else "Failed"
        self.objects["Job", namespace, name] = {
            **job,
            "status": {"conditions": [{"type": done, "status": "True"}]},
        }
        ended = {"terminated": {"exitCode": exit_code}}
        status = {
            "phase": "Succeeded" if exit_code == 0 else "Failed",
            "containerStatuses": [{"name": "main", "state": ended}],
        }
        for pod in self._pods_of(namespace, name):
            self.objects["Pod", namespace, pod["metadata"]["name"]] = {**pod, "status": status}

    def node(self, full: Container[str] = ()) -> str:
        """A node that takes pods and is not `full`; bought if there is none."""
        for (kind, _, name), each in self.objects.items():
            if kind != "Node" or name in full:
                continue
            if name not in self.dead and not each["spec"].get("unschedulable"):
                return name
        number = next(self.numbers)
        name, labels = f"node-{number}", {
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": f"z-{number}",
            "karpenter.sh/capacity-type": "spot",
            "sluice.dev/checkpoint": "criu-4.2",
            MANUFACTURER: "intel",
            GENERATION: "5",
        }  # fmt: skip
        metadata = {"name": name, "labels": labels}
        self.create(
            {"kind": "Node", "metadata": metadata, "spec": {"providerID": f"aws:///z/i-{number}"}}
        )
        return name

    def provide(self) -> None:
        """Karpenter and the scheduler: pods that wait get a node."""
        for key, each in list(self.objects.items()):
            if key[0] != "Pod" or each["spec"].get("nodeName"):
                continue
            gated = each["spec"].get("schedulingGates")
            if each["status"]["phase"] == "Pending" and not gated:
                self.objects[key] = self._scheduled(each)
                if job := self._job_of(each):
                    self._count(key[1], job["metadata"]["name"])

    def vanish(self, node: str) -> None:
        """EC2 takes a machine; Kubernetes does not notice yet."""
        self.dead.add(node)

    def notice_the_dead(self) -> None:
        """Karpenter and Kubernetes find out: node and pods go, Jobs get new pods."""
        for name in self.dead:
            self.objects.pop(("Node", "", name), None)
        for (kind, namespace, name), each in list(self.objects.items()):
            if kind == "Pod" and each["spec"].get("nodeName") in self.dead:
                self._remove_pod(namespace, name)

    def _remove_pod(self, namespace: str, name: str) -> None:
        pod = self.objects.pop(("Pod", namespace, name), None)
        if pod is not None and pod["metadata"].get("finalizers"):
            going = {**pod["metadata"], "deletionTimestamp": "now"}
            self.objects["Pod", namespace, name] = {**pod, "metadata": going}
            return
        job = self._job_of(pod) if pod else None
        if pod is None or job is None or not pod["metadata"].get("ownerReferences"):
            return
        of = job["metadata"]["name"]
        if job["metadata"].get("deletionTimestamp"):
            if not self._pods_of(namespace, of):
                del self.objects["Job", namespace, of]
        elif self._pods_of(namespace, of) and members(job) == 1:
            return  # another one has taken its place
        elif pod["status"]["phase"] in ("Running", "Pending") and not job["spec"].get("suspend"):
            self._add_pod(job, int(pod["metadata"]["labels"].get(INDEX, "0")))
            self._count(namespace, of)

    def _pods_of(self, namespace: str, job: str) -> builtins.list[Document]:
        return [
            each
            for (kind, where, _), each in self.objects.items()
            if (kind, where) == ("Pod", namespace)
            and any(owner["name"] == job for owner in each["metadata"].get("ownerReferences", ()))
        ]

    def _adopt(self, job: Document, pod: Document) -> None:
        """The Job controller takes in what its selector matches, and lets surplus pods go."""
        metadata = pod["metadata"]
        fits = metadata["labels"].get(CONTROLLER_UID) == job["metadata"]["uid"]
        ended = "conditions" in job.get("status", {}) or job["metadata"].get("deletionTimestamp")
        if not fits or ended or metadata.get("ownerReferences"):
            return
        others = self._pods_of(metadata["namespace"], job["metadata"]["name"])
        adopted = {**metadata, "ownerReferences": [owner_of(job)]}
        key = "Pod", metadata["namespace"], metadata["name"]
        self.objects[key] = {**pod, "metadata": adopted}
        for other in others:
            if not other["spec"].get("nodeName"):
                self._remove_pod(metadata["namespace"], other["metadata"]["name"])

    def _job_of(self, pod: Document) -> Document | None:
        of = pod["metadata"].get("labels", {}).get(JOB_NAME, "")
        return self.get("Job", pod["metadata"].get("namespace", ""), of)

    def _count(self, namespace: str, name: str) -> None:
        """The Job controller: how many of its pods are ready."""
        job = self.objects["Job", namespace, name]
        if "conditions" in job.get("status", {}):
            return
        phases = [pod["status"]["phase"] for pod in self._pods_of(namespace, name)]
        began = job.get("status", {}).get("startTime", "now")
        status: Document = {"ready": phases.count("Running"), "startTime": began}
        if "Failed" in phases:  # a Job is Failed only when all of its pods have ended
            status = {"conditions": [{"type": "Failed", "status": "True"}]}
            for pod in self._pods_of(namespace, name):
                if pod["status"]["phase"] != "Failed":
                    del self.objects["Pod", namespace, pod["metadata"]["name"]]
        self.objects["Job", namespace, name] = {**job, "status": status}

    def _add_pod(self, job: Document, index: int) -> None:
        gang = members(job) > 1
        of, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        name = f"{of}-{index}-pod" if gang else f"{of}-pod"
        template = job["spec"].get("template", {})
        gates = template.get("spec", {}).get("schedulingGates")
        own = template.get("metadata", {}).get("labels", {})
        labels = {**job["metadata"]["labels"], **own, JOB_NAME: of}
        labels[CONTROLLER_UID] = job["metadata"]["uid"]
        chosen = {k: v for k, v in template.get("spec", {}).items() if k == "nodeSelector"}
        made: dict[str, Any] = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels | ({INDEX: str(index)} if gang else {}),
                "annotations": dict(template.get("metadata", {}).get("annotations", {})),
                "finalizers": list(template.get("metadata", {}).get("finalizers", ())),
                "ownerReferences": [owner_of(job)],
            },
            "spec": {"containers": [{"name": "main"}], **chosen},
            "status": {"phase": "Pending"},
        }
        if gates:
            made["spec"]["schedulingGates"] = gates
        self.create(made if gates else self._scheduled(made))

    def _scheduled(self, pod: Document) -> Document:
        """The members of a gang are on a node each."""
        metadata, taken = pod["metadata"], set()
        if INDEX in metadata.get("labels", {}):
            siblings = self._pods_of(metadata["namespace"], metadata["labels"][JOB_NAME])
            taken = {each["spec"].get("nodeName", "") for each in siblings}
        spec = {**pod["spec"], "nodeName": self.node(taken)}
        status = {"phase": "Pending"} if self._is_held(pod) else self._status_of(pod)
        return {**pod, "spec": spec, "status": status}

    def _status_of(self, pod: Document) -> Document:
        """Of a pod whose containers start."""
        restored = (pod["metadata"].get("annotations") or {}).get("sluice.dev/restore-from")
        if restored not in self.damaged:
            return {"phase": "Running"}
        ended = {"exitCode": 128, "reason": "StartError", "message": self.restore_error}
        container = {"name": "main", "state": {"terminated": ended}}
        return {"phase": "Failed", "containerStatuses": [container]}


JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"


CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


def owner_of(job: Document) -> Document:
    at = job["metadata"]
    return {"kind": job["kind"], "name": at["name"], "uid": at["uid"], "controller": True}


def members(job: Document) -> int:
    indexed = job["spec"].get("completionMode") == "Indexed"
    return int(job["spec"].get("parallelism", 1)) if indexed else 1
