"""Apply and delete configuration: validated as a whole, written at one version or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.core.config.catalog import unknown_controller
from sluice.core.config.document import Flaw
from sluice.core.config.ignored_fields import list_ignored_fields
from sluice.core.config.kueue_objects import KUEUE_KINDS, read_objects
from sluice.core.config.scheduling_policy import KIND as POLICY
from sluice.core.lifecycle.indexes import blocked_key, pending_key
from sluice.ports import CatalogEdit, CatalogSnapshot, Document
from sluice.usecases.configuration import configured
from sluice.usecases.fleet import beat
from sluice.usecases.request_errors import ConflictError, InvalidError, NotFoundError
from sluice.usecases.steering.limits import check_ledgers
from sluice.usecases.steering.own_objects import OWN_KINDS, flaws_of
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.core.config.budget import Budget
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import ClusterQueue
    from sluice.ports import Catalog, Clock, Kicks, Ledgers, Nodes, Workloads
    from sluice.usecases.callers import Authority

Key = tuple[str, str]

KINDS = (*KUEUE_KINDS, *OWN_KINDS)
NAMESPACED = frozenset({"LocalQueue"})
DEFAULT_NAMESPACE = "default"
ATTEMPTS = 5
SCANNED = 5_000
UNCHANGED = "unchanged"
IN_USE_SHOWN = 5
MAX_WRITES = 99  # one transaction takes 100 items; one is the version of the whole


@dataclass(frozen=True, kw_only=True)
class Apply:
    """`ledgers` and `workloads` say what is in use; changed roots are kicked.

    A new cluster counts as one that answers until `observe` has had the time to ask it.
    """

    catalog: Catalog
    ledgers: Ledgers
    workloads: Workloads
    kicks: Kicks
    nodes: Nodes
    clock: Clock

    def __call__(
        self,
        caller: Authority,
        documents: Sequence[Any],
        *,
        dry_run: bool = False,
        prune: bool = False,
    ) -> Json:
        """What each object becomes: created, changed (with the fields), unchanged or deleted.

        `prune` deletes the applied objects of the documents' kinds that the documents do not name.
        `warnings` say what is valid and will not work.
        Raises ForbiddenError, InvalidError with every flaw, ConflictError.
        """
        caller.require_admin("applying configuration")
        wanted = _keyed(documents)
        for _ in range(ATTEMPTS):
            snapshot = self.catalog.snapshot()
            remove = _unnamed(snapshot, wanted) if prune else ()
            after = _without(_with(snapshot, wanted), remove)
            _check(snapshot, after, wanted)
            for key in remove:
                self._require_unused(snapshot, after, *key)
            items = [
                _difference(snapshot, key, doc) | {"warnings": _warnings(key, doc, after)}
                for key, doc in wanted.items()
            ]
            put = {
                key: wanted[key]
                for key, item in zip(wanted, items, strict=True)
                if item["result"] != UNCHANGED
            }
            items += [_deleted(kind, name) for kind, name in remove]
            edit = self._edit(snapshot, after, put=put, remove=remove)
            check_ledgers(configured(after).queues, edit.roots)
            if dry_run or not (put or remove):
                return {"items": items, "dryRun": dry_run}
            if self.catalog.edit(edit):
                for kind, name in put:
                    if kind == "Cluster" and name not in snapshot.of(kind):
                        beat(self.nodes, name, self.clock.now())
                self._kick(after, (*put, *remove), edit.roots)
                return {"items": items, "dryRun": dry_run}
        raise ConflictError("the configuration keeps changing; apply again")

    def delete(self, caller: Authority, kind: str, name: str, *, dry_run: bool = False) -> Json:
        """Removes one object that nothing uses. Raises NotFoundError, ConflictError."""
        caller.require_admin("deleting configuration")
        key = (kind, name)
        for _ in range(ATTEMPTS):
            snapshot = self.catalog.snapshot()
            if name not in snapshot.of(kind):
                raise NotFoundError(f"no {kind} is named {name}")
            after = _without(snapshot, (key,))
            self._require_unused(snapshot, after, kind, name)
            if broken := _new_problems(snapshot, after):
                raise ConflictError(f"{kind} {name} is in use; without it:", broken)
            edit = self._edit(snapshot, after, remove=(key,))
            if dry_run or self.catalog.edit(edit):
                if not dry_run:
                    self._kick(after, [key], edit.roots)
                return {"kind": kind, "name": name, "result": "deleted", "dryRun": dry_run}
        raise ConflictError("the configuration keeps changing; delete again")

    def _edit(
        self,
        snapshot: CatalogSnapshot,
        after: CatalogSnapshot,
        *,
        put: Mapping[Key, Document] | None = None,
        remove: Sequence[Key] = (),
    ) -> CatalogEdit:
        """The transaction: roots whose limits change, and ledgers that must not move."""
        put = put or {}
        before, now = configured(snapshot).queues, configured(after).queues
        moved = _moved(before, now)
        touched = {*put, *remove}
        roots = _roots_of(before, touched) | _roots_of(now, touched)
        ledgers = []
        for root in sorted({before.root_of(cq) for cq in moved}):
            ledger = self.ledgers.read(root)
            for cq in moved:
                if before.root_of(cq) == root and any(ledger.usage.get(cq, {}).values()):
                    raise ConflictError(_held(cq, now))
            ledgers.append((root, ledger.version))
        roots |= {root for root, _ in ledgers}
        if (writes := len(put) + len(remove) + len(roots) + len(ledgers)) > MAX_WRITES:
            raise InvalidError(
                f"{len(put)} changed objects in {len(roots)} trees are {writes} writes, more than "
                f"the {MAX_WRITES} that can happen at once; apply them in smaller files"
            )
        return CatalogEdit(
            based_on=snapshot.version,
            put=tuple((kind, name, doc) for (kind, name), doc in put.items()),
            remove=tuple(remove),
            roots=tuple(sorted(roots)),
            ledgers=tuple(ledgers),
        )

    def _kick(self, after: CatalogSnapshot, changed: Iterable[Key], roots: Iterable[str]) -> None:
        """More quota, another cluster or order, or one budget less may let waiting ones run."""
        if any(kind in {"Cluster", POLICY} for kind, _ in changed):
            roots = configured(after).queues.roots()
        self.kicks.kick(roots)

    def _require_unused(
        self, snapshot: CatalogSnapshot, after: CatalogSnapshot, kind: str, name: str
    ) -> None:
        """Raises ConflictError while workloads wait in a queue, or hold a cluster or a flavor."""
        queues = configured(snapshot).queues
        if kind == "ResourceFlavor" and (where := self._holding(queues, name)):
            raise ConflictError(
                f"ResourceFlavor {name} is in use by work of {', '.join(where)}; wait for it or "
                "cancel it"
            )
        ids: list[str] = []
        if kind == "LocalQueue" and name in queues.local_queues:
            cq = queues.local_queues[name].cluster_queue
            ids = self.workloads.inbox(pending_key(cq), limit=SCANNED)
            ids += self.workloads.inbox(blocked_key(name.partition("/")[0]), limit=SCANNED)
            ids += [i for each in snapshot.of("Cluster") for i in self.workloads.active(each)]
            ids = [w.id for w in self.workloads.get_many(ids) if w.queue == name]
        elif kind == "ClusterQueue":
            ids = self.workloads.inbox(pending_key(name), limit=SCANNED)
        elif kind == "Cluster":
            ids = self.workloads.active(name)
        elif kind == "Cohort":
            ids = _members(configured(after).queues, name)
        if ids:
            some = ", ".join(ids[:IN_USE_SHOWN])
            raise ConflictError(f"{kind} {name} is in use by {len(ids)}: {some}")

    def _holding(self, queues: QueueCatalog, flavor: str) -> list[str]:
        """ClusterQueues with quota of a flavor in use, also of one that they have no longer.

        A workload that moves is rendered anew with the flavors of its reservation.
        """
        return sorted(
            cq
            for root in queues.roots()
            for cq, amounts in self.ledgers.read(root).usage.items()
            if any(cell.startswith(f"{flavor}|") and amount for cell, amount in amounts.items())
        )


def key_of(document: Mapping[str, Any]) -> Key:
    """Kind and name in the catalog; `namespace/name` for namespaced kinds."""
    metadata = _map(document.get("metadata"))
    kind, name = str(document.get("kind")), str(metadata.get("name") or "")
    if kind in NAMESPACED:
        return kind, f"{metadata.get('namespace') or DEFAULT_NAMESPACE}/{name}"
    return kind, name


def _map(value: Any) -> Mapping[str, Any]:
    """A map of a document, or nothing, whatever stands there; what is wrong is said elsewhere."""
    return value if isinstance(value, Mapping) else {}


def _keyed(documents: Sequence[Any]) -> dict[Key, Document]:
    """The documents by key. Raises InvalidError for what cannot be applied at all."""
    errors: list[dict[str, str]] = []
    wanted: dict[Key, Document] = {}
    for number, document in enumerate(documents, start=1):
        place = f"document {number}"
        if not isinstance(document, Mapping):
            errors.append({"field": place, "message": "must be an object"})
            continue
        key = key_of(document)
        if key[0] == "Configuration":
            message = (
                "the configuration of Kueue's controller cannot be applied; write its fairSharing, "
                f"admissionFairSharing and resources.quotaCheckStrategy into a {POLICY}"
            )
            errors.append({"field": f"{place}: kind", "message": message})
        elif key[0] not in KINDS:
            known = ", ".join(KINDS)
            errors.append({"field": f"{place}: kind", "message": f"{key[0]!r}; known: {known}"})
        elif not key[1].rpartition("/")[2]:
            errors.append({"field": f"{place} ({key[0]}): metadata.name", "message": "is missing"})
        elif key in wanted:
            errors.append({"field": place, "message": f"{key[0]} {key[1]} occurs twice"})
        else:
            wanted[key] = {k: v for k, v in document.items() if k != "status"}
    if errors:
        raise InvalidError("the documents cannot be applied", errors)
    return wanted


def _with(snapshot: CatalogSnapshot, wanted: Mapping[Key, Document]) -> CatalogSnapshot:
    documents = {kind: dict(of_kind) for kind, of_kind in snapshot.documents.items()}
    for (kind, name), document in wanted.items():
        documents.setdefault(kind, {})[name] = document
    return CatalogSnapshot(snapshot.version, documents)


def _without(snapshot: CatalogSnapshot, keys: Iterable[Key]) -> CatalogSnapshot:
    documents = {kind: dict(of_kind) for kind, of_kind in snapshot.documents.items()}
    for kind, name in keys:
        del documents[kind][name]
    return CatalogSnapshot(snapshot.version, documents)


def _unnamed(snapshot: CatalogSnapshot, wanted: Iterable[Key]) -> tuple[Key, ...]:
    """Applied objects of the same kinds that are not among the wanted."""
    named = set(wanted)
    kinds = sorted({kind for kind, _ in named})
    return tuple(
        (kind, name)
        for kind in kinds
        for name in sorted(snapshot.of(kind))
        if (kind, name) not in named
    )


def _check(
    snapshot: CatalogSnapshot, after: CatalogSnapshot, wanted: Mapping[Key, Document]
) -> None:
    """Raises InvalidError with everything that the documents would make wrong."""
    flaws: list[Flaw] = []
    labelled = {f"{kind} {name}": (kind, doc) for (kind, name), doc in wanted.items()}
    kueue = [(label, doc) for label, (kind, doc) in labelled.items() if kind in KUEUE_KINDS]
    read_objects(kueue, flaws)
    for label, (kind, document) in labelled.items():
        if kind in OWN_KINDS:
            flaws += flaws_of(label, document)
    for label, (kind, document) in labelled.items():
        if kind == "LocalQueue":
            flaws += _repointed(label, snapshot.of(kind).get(label.partition(" ")[2]), document)
    errors = [
        {"field": " ".join(filter(None, (f.document, f.field))), "message": f.message}
        for f in flaws
    ]
    errors = errors or _new_problems(snapshot, after)
    if errors:
        raise InvalidError("the configuration would be wrong", errors)


def _repointed(label: str, before: Document | None, document: Document) -> Iterator[Flaw]:
    """A LocalQueue keeps its ClusterQueue: workloads in it were counted there."""
    if before is not None:
        old, new = (_map(doc.get("spec")).get("clusterQueue") for doc in (before, document))
        if old != new:
            message = f"is {old} and immutable; make another LocalQueue for {new}"
            yield Flaw(label, "spec.clusterQueue", message)


def _new_problems(snapshot: CatalogSnapshot, after: CatalogSnapshot) -> list[dict[str, str]]:
    """What is wrong afterwards and was not before; old problems must not block other changes."""
    old, new = configured(snapshot), configured(after)
    known = {*old.queues.problems, *old.problems}
    problems = [
        {"field": f"{p.kind} {p.name} {p.field}", "message": p.message}
        for p in (*new.queues.problems, *new.problems)
        if p not in known
    ]
    tenants = after.of("Tenant")
    if tenants and not any(doc["spec"].get("admin") is True for doc in tenants.values()):
        message = (
            "no Tenant would be an administrator; set spec.admin on one, or nobody could apply"
        )
        problems.append({"field": "Tenant", "message": message})
    return problems


def _moved(before: QueueCatalog, after: QueueCatalog) -> list[str]:
    """ClusterQueues that leave their root cohort, or vanish."""
    return [
        cq
        for cq in sorted(before.cluster_queues)
        if cq not in after.cluster_queues or before.root_of(cq) != after.root_of(cq)
    ]


def _held(cq: str, after: QueueCatalog) -> str:
    if cq not in after.cluster_queues:
        return f"ClusterQueue {cq} still holds quota; wait for its workloads or cancel them"
    return (
        f"ClusterQueue {cq} holds quota and cannot move to the tree of {after.root_of(cq)}: "
        "stop it (spec.stopPolicy: HoldAndDrain), wait until it is empty, then move it"
    )


def _members(queues: QueueCatalog, cohort: str) -> list[str]:
    names = [name for name, cq in queues.cluster_queues.items() if cq.cohort == cohort]
    return sorted(names + [name for name, c in queues.cohorts.items() if c.parent == cohort])


def _roots_of(queues: QueueCatalog, keys: Iterable[Key]) -> set[str]:
    """The trees that objects have a say in."""
    roots: set[str] = set()
    for kind, name in keys:
        if kind == "ClusterQueue" and name in queues.cluster_queues:
            roots.add(queues.root_of(name))
        elif kind == "Cohort" and name in queues.cohorts:
            roots.add(queues.root_of_cohort(name))
        elif kind == "LocalQueue" and name in queues.local_queues:
            cq = queues.local_queues[name].cluster_queue
            roots |= {queues.root_of(cq)} if cq in queues.cluster_queues else set()
        elif kind == "AdmissionCheck":
            roots |= {
                queues.root_of(cq.name)
                for cq in queues.cluster_queues.values()
                if name in cq.admission_checks
            }
        elif kind == "Budget":
            roots = roots.union(*(_above(queues, b) for b in queues.budgets if b.name == name))
        elif kind == "ResourceFlavor":
            roots |= {
                queues.root_of(cq.name) for cq in queues.cluster_queues.values() if _uses(cq, name)
            }
    return roots


def _above(queues: QueueCatalog, budget: Budget) -> set[str]:
    """The root above the queue of a budget, if that queue exists."""
    local = queues.local_queues.get(budget.local_queue or "")
    cq = local.cluster_queue if local else budget.cluster_queue or ""
    return {queues.root_of(cq)} if cq in queues.cluster_queues else set()


def _uses(queue: ClusterQueue, flavor: str) -> bool:
    return any(each.name == flavor for group in queue.resource_groups for each in group.flavors)


def _difference(snapshot: CatalogSnapshot, key: Key, document: Document) -> Json:
    """What applying does to one object."""
    kind, name = key
    before = snapshot.of(kind).get(name)
    diff = [] if before is None else _fields(before, document)
    result = "created" if before is None else "changed" if diff else UNCHANGED
    return {"kind": kind, "name": name, "result": result, "diff": diff}


def _deleted(kind: str, name: str) -> Json:
    return {"kind": kind, "name": name, "result": "deleted", "diff": [], "warnings": []}


def _warnings(key: Key, document: Document, after: CatalogSnapshot) -> list[str]:
    """What Kueue takes, and so do we, though it has no effect or its queues will admit nobody."""
    kind, name = key
    config = configured(after)
    shared = False
    if kind == "ClusterQueue":
        policy = config.policies.of(config.queues.root_of(name))
        shared = policy.fair_sharing is not None
    found = [
        f"{path} has no effect: {why}"
        for path, why in list_ignored_fields(document, fair_sharing=shared)
    ]
    check = (config.queues.admission_checks or {}).get(name)
    if kind == "AdmissionCheck" and check is not None and (message := unknown_controller(check)):
        found.append(f"{message}. Queues with it stay inactive")
    return found


def _fields(before: Document, after: Document) -> list[Json]:
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return [
        {"field": path, "before": old.get(path), "after": new.get(path)}
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    else:
        yield path, value
