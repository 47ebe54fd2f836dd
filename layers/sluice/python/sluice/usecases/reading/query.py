"""The api's answers to questions; every method shows a caller only what its Tenant may see."""

from __future__ import annotations

import json
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.intake.submission import NO_QUEUE
from sluice.core.lifecycle.happenings import story
from sluice.core.lifecycle.indexes import blocked_key, pending_key
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import ON_CLUSTER, State, Workload, phase
from sluice.core.passes.admission_cycle import decide
from sluice.core.values.identity import ID_LENGTH, elsewhere_id
from sluice.errors import ClusterError
from sluice.usecases.configuration import configured
from sluice.usecases.request_errors import (
    AmbiguousError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from sluice.usecases.views import Json, Refusals, hardware, workload_view

if TYPE_CHECKING:
    from sluice.core.scheduling.scheduler import Refusal
    from sluice.ports import (
        Catalog,
        CatalogSnapshot,
        Clock,
        Clusters,
        Document,
        Faults,
        Ledgers,
        LogArchive,
        Losses,
        Manifests,
        Nodes,
        Offerings,
        Pools,
        Recordings,
        Timeline,
        Workloads,
    )
    from sluice.usecases.admitting.admit import Admit
    from sluice.usecases.callers import Authority

DAY_MS = 86_400_000
SCANNED = 5_000  # newest workloads of a queue that a list or a prefix looks at
PAGE_LIMIT = 500
IDS_LIMIT = 100
PASSES_SCANNED = 500  # newest audit records
LOG_BYTES = 1_000_000
WORKLOAD_LABEL = "sluice.dev/workload"
GENERATION_LABEL = "sluice.dev/generation"
UNFINISHED = ON_CLUSTER | {State.PENDING}


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to; empty fields do not narrow. `since` in epoch ms."""

    queue: str = ""
    state: str = ""
    name: str = ""
    user: str = ""
    selector: Mapping[str, str] | None = None
    since: int | None = None
    limit: int = PAGE_LIMIT
    cursor: str = ""

    @property
    def narrow(self) -> bool:
        """Whether more has to be read than is shown."""
        return bool(self.state or self.name or self.user or self.selector or self.cursor)

    def admit(self, workload: Workload) -> bool:
        wanted = self.state.upper()
        return (
            (not self.state or wanted in {phase(workload), workload.state.value})
            and self.name in {"", workload.name}
            and (not self.user or self.user in workload.submitted_by)
            and all(workload.labels.get(k) == v for k, v in (self.selector or {}).items())
        )


@dataclass(frozen=True, kw_only=True)
class Query:
    """Reads only.

    `admit` gathers what a pass would look at; it is never run. `clusters` serves live logs;
    without it only archived ones are found. `recordings` holds what passes saw and decided.
    """

    workloads: Workloads
    ledgers: Ledgers
    catalog: Catalog
    manifests: Manifests
    timeline: Timeline
    archive: LogArchive
    nodes: Nodes
    losses: Losses
    offerings: Offerings
    pools: Pools
    faults: Faults
    clock: Clock
    admit: Admit
    clusters: Clusters | None = None
    recordings: Recordings | None = None

    def listed(self, caller: Authority, filters: Filters) -> Json:
        """Workloads, newest first; without `since` the unfinished ones and the last 24 hours."""
        snapshot = self.catalog.snapshot()
        queues = self.queues(caller, snapshot, filters.queue)
        scanned = SCANNED if filters.narrow else filters.limit + 1
        since = self.clock.now() - DAY_MS if filters.since is None else filters.since
        found = {
            w.id: w
            for queue in queues
            for w in self.workloads.listed(queue, since=since, limit=scanned)
        }
        if filters.since is None:
            found |= {w.id: w for w in self.unfinished(snapshot, queues, known=found)}
        chosen = sorted(filter(filters.admit, found.values()), key=_key, reverse=True)
        rest = [w for w in chosen if not filters.cursor or _key(w) < filters.cursor]
        page = rest[: filters.limit]
        answer: Json = {"items": self._views(page)}
        if len(rest) > len(page):
            answer["cursor"] = _key(page[-1])
        return answer

    def several(self, caller: Authority, ids: Sequence[str]) -> Json:
        """These workloads, as far as they exist and the caller may see them."""
        if len(ids) > IDS_LIMIT:
            raise InvalidError(f"{len(ids)} ids; ask for at most {IDS_LIMIT} at a time")
        found = self._named(caller, ids)
        views = self._views(list(found.values()))
        return {"items": [_sent_as(i, view) for i, view in zip(found, views, strict=True)]}

    def workload(self, caller: Authority, reference: str) -> Json:
        return _sent_as(reference, self._views([self.find(caller, reference)])[0])

    def find(self, caller: Authority, reference: str) -> Workload:
        """The record of an id or a unique prefix.

        Raises NotFoundError also for workloads of others: ids can be guessed from names. Raises
        AmbiguousError for a prefix of several.
        """
        if len(reference) == ID_LENGTH:
            found = list(self._named(caller, [reference]).values())
        else:
            found = self._prefixed(caller, reference)
        if not found:
            named = list({w.id: w for w in self._seen(caller) if w.name == reference})[:5]
            hint = f"{', '.join(named)} has that name" if named else "`sluice ls` lists them"
            raise NotFoundError(f"no workload has the id {reference}", hint=hint)
        if len(found) > 1:
            some = ", ".join(w.id for w in found[:5])
            raise AmbiguousError(
                f"{len(found)} workloads begin with {reference}", hint=f"for example {some}"
            )
        return found[0]

    def _named(self, caller: Authority, ids: Sequence[str]) -> dict[str, Workload]:
        """By id: the records that the caller may see, and rejected ones that it sent elsewhere.

        Whether somebody else has a workload of an id makes no difference to the answer.
        """
        seen = {w.id: w for w in self.workloads.get_many(ids) if caller.may_see(w.namespace)}
        elsewhere = {i: elsewhere_id(caller.home, i) for i in ids if i not in seen and caller.home}
        refused = {w.id: w for w in self.workloads.get_many(elsewhere.values())}
        seen |= {i: refused[own] for i, own in elsewhere.items() if own in refused}
        return {i: seen[i] for i in ids if i in seen}

    def rooted(self, workload: Workload) -> Workload:
        """The record, below the root of now: a queue may move to another tree while work waits."""
        queues = configured(self.catalog.snapshot()).queues
        if workload.reservation is not None or workload.cq not in queues.cluster_queues:
            return workload
        return replace(workload, root=queues.root_of(workload.cq))

    def manifest(self, caller: Authority, reference: str) -> Json:
        """The document as it was submitted."""
        workload = self.find(caller, reference)
        key = workload.manifest_key
        document = self.manifests.get_many([key]).get(key)
        if document is None:
            raise NotFoundError(f"no document of workload {workload.id} was kept")
        return document

    def events(self, caller: Authority, reference: str) -> Json:
        workload = self.find(caller, reference)
        lines = story(self.timeline.of(workload.id), workload)
        return {"items": [dict(line) for line in lines]}

    def machines(self, caller: Authority, reference: str) -> Json:
        """Where its pods run now: node, and what the inventory knows of the instance."""
        workload = self.find(caller, reference)
        known = {row.node: row for row in self.nodes.of(workload.cluster)}
        names = sorted({node for node in self._nodes_now(workload) if node})
        shown = (
            *("instance", "type", "zone", "capacity_type", "nodepool"),
            *("checkpoint", "connections"),
        )
        return {
            "items": [
                {"node": name}
                | {
                    key: value
                    for key in shown
                    if (value := getattr(known.get(name, InventoryRow()), key))
                }
                for name in names
            ]
        }

    def objects(self, caller: Authority, kind: str, name: str | None = None) -> Json:
        """The applied objects of a kind, verbatim. Tenants see what the queues are made of."""
        if kind in {"Tenant", "Budget"}:
            caller.require_admin(f"reading {kind} objects")
        documents = self.catalog.snapshot().of(kind)
        visible = {key: doc for key, doc in documents.items() if _visible(caller, kind, key)}
        if name is None:
            return {"items": [visible[key] for key in sorted(visible)]}
        if name not in visible:
            raise NotFoundError(f"no {kind} is named {name}")
        return visible[name]

    def audit(self, caller: Authority, root: str, after: int, limit: int) -> Json:
        """Batch records of a ledger with a version above `after`, oldest first."""
        caller.require_admin("reading the audit")
        items: list[Json] = []
        for record in self.ledgers.batches(root, after=after):
            items.append(dict(record))
            if len(items) == limit:
                break
        return {"items": items}

    def passes(self, caller: Authority, root: str, after: int, limit: int) -> Json:
        """The recorded passes among the audit records above a version, oldest first."""
        caller.require_admin("reading recorded passes")
        newest = self.ledgers.read(root).version
        found: dict[int, Json] = {}
        for batch in self.ledgers.batches(root, after=max(after, newest - PASSES_SCANNED)):
            if "pass" in batch:
                one = dict(batch["pass"]) | {"at": batch["at"], "admitted": 0, "preempted": 0}
                one = found.setdefault(one["version"], one)
                for kind in ("admitted", "preempted"):
                    one[kind] += len(batch.get(kind, ()))
        return {"items": list(found.values())[-limit:]}

    def recorded(self, caller: Authority, root: str, version: int) -> Json:
        """The recording of the pass that made a ledger version. Raises NotFoundError."""
        caller.require_admin("reading recorded passes")
        batches = self.ledgers.batches(root, after=max(0, version - 1))
        batch = next(batches, None)
        if batch is None or batch["version"] != version:
            raise NotFoundError(f"the ledger of {root} has no version {version}")
        if "pass" not in batch:
            message = f"version {version} of {root} was not recorded; it may only have released"
            raise NotFoundError(message, hint=f"`sluice replay --root {root}` takes the newest")
        first = batch["pass"]["version"]
        text = self.recordings.get(root, first) if self.recordings is not None else None
        if text is None:
            raise NotFoundError(
                f"the recording of version {version} of {root} is not kept any more"
            )
        document: Json = json.loads(text)
        if document.get("snapshotDigest") != batch["pass"]["digest"]:
            raise ConflictError(
                f"the recording of version {version} of {root} is not the audited one"
            )
        return document

    def logs(
        self, caller: Authority, reference: str, generation: int | None, *, every: bool = False
    ) -> Json:
        """Which logs there are: of the newest generation that has any, or of `every` one.

        One that `continues` begins with what the generation before had printed until its dump.
        """
        workload = self.find(caller, reference)
        found = {
            (int(run), pod, container): False
            for run, pod, container in (
                entry.split("/", 2) for entry in self.archive.list(workload.id)
            )
        }
        found |= dict.fromkeys(self._live(workload), True)
        if generation is None and found:
            generation = max(key[0] for key in found)
        dumps = driver_of(workload.options).dumps
        items = [
            {
                "generation": key[0],
                "pod": key[1],
                "container": key[2],
                "live": live,
                "continues": dumps and key[0] > 0,
            }
            for key, live in sorted(found.items())
            if every or key[0] == generation
        ]
        return {"items": items}

    def log(
        self,
        caller: Authority,
        reference: str,
        *,
        generation: int,
        pod: str,
        container: str,
        offset: int,
    ) -> Json:
        """A part of one log from a byte offset; `offset` in the answer is where to go on."""
        workload = self.find(caller, reference)
        entry = f"{generation}/{pod}/{container}"
        archived = entry in self.archive.list(workload.id)
        # What a node has archived of a running container is some seconds old.
        live = (generation, pod, container) in self._live(workload)
        if not (live or archived):
            raise NotFoundError(f"workload {workload.id} has no log {entry}")
        if live:
            try:
                log = self._live_log(workload, pod, container, offset + LOG_BYTES + 1)
            except UnreachableError:
                if not archived:
                    raise
                live = False
        if not live:
            log = self.archive.get(workload.id, generation, pod, container)
        part = log[offset : offset + LOG_BYTES]
        more = len(log) > offset + len(part)
        # A character that is cut in two at the border waits for its other half.
        decoder = getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(part, final=not live and not more)
        return {
            "text": text,
            "offset": offset + len(part) - len(decoder.getstate()[0]),
            "more": more,
        }

    def _live_log(self, workload: Workload, pod: str, container: str, most: int) -> bytes:
        """The first bytes of a running container's log. Raises UnreachableError."""
        if self.clusters is None:
            return b""
        try:
            cluster = self.clusters.cluster(workload.cluster)
            return cluster.logs(workload.namespace, pod, container, limit_bytes=most)
        except ClusterError as error:
            raise UnreachableError(f"cluster {workload.cluster} gives no log: {error}") from error

    def refusals(self, roots: Iterable[str]) -> Refusals:
        """Why the workloads of these trees wait: what the core says now, else the newest pass."""
        found: dict[str, tuple[str, str, int]] = {}
        for root in sorted(set(roots) - {""}):
            packed = self.ledgers.newest_pass(root).get("refusals")
            if packed:
                lines = json.loads(zlib.decompress(bytes(packed)))
                found |= {i: (code, message, at) for i, (code, message, at) in lines.items()}
            for refusal in self._asked(root).values():
                said = (refusal.reason.value, refusal.message, refusal.position)
                found[refusal.workload] = said
        return Refusals(found)

    def _asked(self, root: str) -> Mapping[str, Refusal]:
        """What a cycle would refuse at this moment that passes nobody over; nothing is written."""
        snapshot = self.catalog.snapshot()
        config = configured(snapshot)
        if root not in config.queues.roots():
            return {}
        gathered = self.admit.gather(root, self.ledgers.read(root), snapshot, config)
        fresh = replace(gathered, parked=frozenset())
        return decide(config.queues, fresh, config.policies.of(root), of_all=True).refusals

    def _views(self, workloads: Sequence[Workload]) -> list[Json]:
        now = self.clock.now()
        workloads = [self.rooted(w) for w in workloads]
        waiting = [w.root for w in workloads if w.state is State.PENDING]
        refusals = self.refusals(waiting)
        flavors = self.catalog.snapshot().of("ResourceFlavor")
        machines = self._machines(workloads)
        return [
            workload_view(w, refusals, now) | hardware(w, flavors, machines.get(w.cluster, {}), now)
            for w in workloads
        ]

    def _machines(self, workloads: Sequence[Workload]) -> dict[str, Mapping[str, InventoryRow]]:
        """By cluster and node name: the inventory, where a workload says which nodes it used."""
        clusters = {w.cluster for w in workloads if w.cluster and w.result.nodes}
        return {
            cluster: {node.node: node for node in self.nodes.of(cluster)}
            for cluster in sorted(clusters)
        }

    def queues(self, caller: Authority, snapshot: CatalogSnapshot, queue: str) -> list[str]:
        """The LocalQueues that a list reads. Raises ForbiddenError for one of somebody else."""
        if not queue:
            names = set(snapshot.of("LocalQueue"))
            homes = {name.partition("/")[0] for name in names} | set(caller.namespaces) | {""}
            names |= {f"{namespace}/{NO_QUEUE}" for namespace in homes}
            return sorted(name for name in names if caller.may_see(name.partition("/")[0]))
        if "/" in queue:
            if not caller.may_see(queue.partition("/")[0]):
                raise ForbiddenError(f"LocalQueue {queue} is not in your namespaces")
            return [queue]
        return [
            name for name in self.queues(caller, snapshot, "") if name.partition("/")[2] == queue
        ] or [f"{namespace}/{queue}" for namespace in caller.namespaces]

    def unfinished(
        self, snapshot: CatalogSnapshot, queues: Sequence[str], *, known: Mapping[str, Any]
    ) -> list[Workload]:
        """Waiting and running workloads of these queues that are older than the list's window."""
        local = configured(snapshot).queues.local_queues
        cqs = {local[queue].cluster_queue for queue in queues if queue in local}
        ids = [
            i for cq in sorted(cqs) for i in self.workloads.inbox(pending_key(cq), limit=SCANNED)
        ]
        for namespace in sorted({queue.partition("/")[0] for queue in queues}):
            ids += self.workloads.inbox(blocked_key(namespace), limit=SCANNED)
        ids += [i for cluster in snapshot.of("Cluster") for i in self.workloads.active(cluster)]
        older = [i for i in dict.fromkeys(ids) if i not in known]
        wanted = set(queues)
        return [
            w for w in self.workloads.get_many(older) if w.queue in wanted and w.state in UNFINISHED
        ]

    def _prefixed(self, caller: Authority, prefix: str) -> list[Workload]:
        return list({w.id: w for w in self._seen(caller) if w.id.startswith(prefix)}.values())

    def _seen(self, caller: Authority) -> Iterator[Workload]:
        """The newest workloads of each queue that the caller may see."""
        for queue in self.queues(caller, self.catalog.snapshot(), ""):
            yield from self.workloads.listed(queue, since=0, limit=SCANNED)

    def pods_now(self, workload: Workload) -> list[Document]:
        """The pods of its present generation; none if the cluster does not tell."""
        try:
            return self._pods_now(workload)
        except UnreachableError:
            return []

    def _nodes_now(self, workload: Workload) -> list[str]:
        """Raises UnreachableError."""
        return [str(pod["spec"].get("nodeName", "")) for pod in self._pods_now(workload)]

    def _pods_now(self, workload: Workload) -> list[Document]:
        """Raises UnreachableError."""
        if self.clusters is None or workload.state not in ON_CLUSTER or not workload.cluster:
            return []
        selector = f"{WORKLOAD_LABEL}={workload.id},{GENERATION_LABEL}={workload.generation}"
        try:
            pods, _ = self.clusters.cluster(workload.cluster).list("Pod", selector=selector)
        except ClusterError as error:
            raise UnreachableError(f"cluster {workload.cluster} is silent: {error}") from error
        return pods

    def _live(self, workload: Workload) -> list[tuple[int, str, str]]:
        """Containers of the pods that exist now; none if the cluster does not tell."""
        if self.clusters is None or workload.state not in ON_CLUSTER or not workload.cluster:
            return []
        try:
            pods, _ = self.clusters.cluster(workload.cluster).list(
                "Pod", selector=f"{WORKLOAD_LABEL}={workload.id}"
            )
        except ClusterError:
            return []
        return [
            (
                int(pod["metadata"]["labels"].get(GENERATION_LABEL, workload.generation)),
                pod["metadata"]["name"],
                container["name"],
            )
            for pod in pods
            for container in pod["spec"]["containers"]
        ]


def _sent_as(expected: str, view: Json) -> Json:
    """The view, with the id that its sender expected if it was sent to a foreign namespace."""
    strange = len(expected) == ID_LENGTH and view["id"] != expected
    return view | {"sentAs": expected} if strange else view


def _visible(caller: Authority, kind: str, name: str) -> bool:
    return kind != "LocalQueue" or caller.may_see(name.partition("/")[0])


def _key(workload: Workload) -> str:
    return f"{workload.created_at:013d}#{workload.id}"
