"""Turn messages into workload records: PENDING, or REJECTED with everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from sluice.core.checkpoints.drivers import driver_of, needed_service
from sluice.core.clusters.machine_sizes import why_never
from sluice.core.config import tenants
from sluice.core.config.tenants import Tenant
from sluice.core.intake import documents, kubernetes_door
from sluice.core.intake.submission import (
    NO_QUEUE,
    Accepted,
    Rejected,
    queue_path,
    submission,
)
from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import completion, dependencies, pending_policy
from sluice.core.lifecycle.record import ClusterObject, State, Workload
from sluice.core.lifecycle.record_entries import FieldError, StatusReason
from sluice.core.lifecycle.shape_hash import shape_hash
from sluice.core.passes.maximum_quota import explain_impossible
from sluice.core.passes.node_keys import unknown_keys
from sluice.core.values.identity import digest, workload_id
from sluice.core.values.plain import canonical, to_plain
from sluice.core.values.reasons import Reason
from sluice.errors import ManifestUnavailable, SluiceError
from sluice.ports import (
    Catalog,
    CatalogSnapshot,
    Clock,
    Completions,
    Created,
    Document,
    Manifests,
    Pools,
    TaskTokens,
    Workloads,
)
from sluice.usecases.admitting.pending_caps import PendingCaps
from sluice.usecases.admitting.refusals import conflicting, record_of, rejected
from sluice.usecases.configuration import (
    NO_PLANS,
    Plans,
    clusters_of,
    clusters_with_service,
    configured,
    kinds_somewhere,
    plans_of,
    senders,
)

DEFAULT_PRIORITY_CLASS = "default"
MAX_RECORD_BYTES = 32 * 1024
"""So a hundred of them and a ledger fit into one transaction of DynamoDB, which takes 4 MB."""
MESSAGE_MS = 10_000
"""How long one message may be judged; a List of 1,000 ordinary documents takes a tenth of it."""
BATCH_MS = 15_000
"""After which no further message of a batch is begun; with the last one, half of what Lambda has
is left for writing."""
TOO_MUCH = "the message takes too long to judge; send fewer or smaller documents at once"


@dataclass(frozen=True, slots=True)
class Message:
    """One SQS message, or what stands for one.

    `from_bus`: an EventBridge rule sent it, so its sender is the bus. `object`: it was found in the
    cluster, in `namespace`; its sender is the user who created it there, if that is known.
    """

    id: str
    sender: str
    sent_at: int
    body: str
    from_bus: bool = False
    object: ClusterObject | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message whose record could not be written; SQS brings it again."""

    message_id: str
    error: Exception

    def fields(self) -> dict[str, str]:
        cause = f"{type(self.error).__name__}: {self.error}"
        return {"message_id": self.message_id, "cause": cause}


@dataclass(frozen=True, slots=True)
class Submitted:
    accepted: int
    rejected: int
    failed: tuple[FailedMessage, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A submission's record, its document if it was accepted, and whose task waits for it."""

    message: Message
    record: Workload
    manifest: Document | None
    token: str = field(default="", repr=False)


class OutOfTimeError(SluiceError):
    """A message was not begun in the time of its batch."""


@dataclass(frozen=True, kw_only=True)
class Submit:
    """A message is done only when its durable record exists; neighbours do not disturb it."""

    workloads: Workloads
    manifests: Manifests
    catalog: Catalog
    clock: Clock
    pools: Pools
    tokens: TaskTokens | None = None
    completions: Completions | None = None
    """None for both: a door by which no task of Step Functions comes."""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    fetching: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    caps: PendingCaps = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "caps", PendingCaps(self.workloads, self.clock))

    def __call__(self, messages: Sequence[Message]) -> Submitted:
        """Judges and records every message; one that fails is delivered again, and it alone."""
        snapshot = self.catalog.snapshot()
        plans = plans_of(snapshot, self.pools)
        judged, failed = list[Judged](), list[FailedMessage]()
        began = self.clock.now()
        for message in messages:
            try:
                if self.clock.now() - began > BATCH_MS:
                    raise OutOfTimeError("its neighbours took the time of this batch")  # noqa: TRY301
                judged += self.judge(message, snapshot, plans)
            except Exception as error:  # noqa: BLE001, a fault of storage, or one of ours
                failed.append(FailedMessage(message.id, error))
        self.manifests.put_many({j.record.manifest_key: j.manifest for j in judged if j.manifest})
        outcomes = list(self.pool.map(self.record, judged))
        failures = {each.message_id: each for each in failed}
        failures |= {o.message_id: o for o in outcomes if isinstance(o, FailedMessage)}
        states = [o for o in outcomes if isinstance(o, State)]
        rejected = states.count(State.REJECTED)
        return Submitted(len(states) - rejected, rejected, tuple(failures.values()))

    def judge(
        self, message: Message, snapshot: CatalogSnapshot, plans: Plans = NO_PLANS
    ) -> list[Judged]:
        tenant = tenant_of(message, snapshot)
        now = self.clock.now()
        if tenant is None:
            token = completion.token_in(message.body)
            return [Judged(message, unauthorised(message, now, task=bool(token)), None, token)]
        by = sender_of(message, tenant)
        judged = []
        items = documents.read(message.body)
        until = self.clock.now() + MESSAGE_MS
        # Side by side, since each waits for S3; a message may name MAX_REFERENCES of them.
        read_items = self.fetching.map(lambda item: self.fetched(item, tenant, until), items)
        for read in read_items:
            if self.clock.now() > until:
                read = documents.malformed("", TOO_MUCH, read.index)  # noqa: PLW2901
            item, token = without_token(read)
            record, manifest = self.judge_item(item, message, tenant, (snapshot, plans))
            judged.append(Judged(message, replace(record, task=bool(token)), manifest, token))
        records = dependencies.linked([each.record for each in judged])
        return [
            replace(each, record=sent_by(by, replace(record, object=message.object)))
            for record, each in zip(records, judged, strict=True)
        ]

    def judge_item(
        self,
        item: documents.Document | documents.Malformed,
        message: Message,
        tenant: Tenant,
        seen: tuple[CatalogSnapshot, Plans],
    ) -> tuple[Workload, Document | None]:
        (snapshot, plans), now = seen, self.clock.now()
        found = submission(item, tenant=tenant, key=message.id, now_ms=message.sent_at or now)
        if isinstance(found, Rejected):
            return rejected(
                found, refusal_code(item), [FieldError(**each) for each in found.errors]
            ), None
        if message.object and (flaws := kubernetes_door.refuse_options(found.options)):
            errors = [FieldError(flaw.field, flaw.message) for flaw in flaws]
            return rejected(found, Reason.SCHEMA_INVALID, errors), None
        workload, manifest = placed(found, snapshot, plans)
        if manifest is not None and not self.caps.take(tenant, configured(snapshot).queues):
            advice = (
                f"tenant {tenant.name} has {tenant.max_pending} workloads waiting already, its "
                "maxPending; submit the same again once some of them run, or cancel some"
            )
            return rejected(found, Reason.PENDING_CAP, [FieldError("", advice)]), None
        return workload, manifest

    def fetched(
        self, reference: documents.Item, tenant: Tenant, until: int
    ) -> documents.Document | documents.Malformed:
        """What a reference names; another item as it is."""
        if not isinstance(reference, documents.ManifestReference):
            return reference
        if self.clock.now() > until:
            return documents.malformed("manifestRef", TOO_MUCH, reference.index)
        uri = f"s3://{reference.bucket}/{reference.object_key}"
        if not tenant.may_fetch(reference.bucket, reference.object_key):
            message = f"tenant {tenant.name} may not refer to {uri}; ask for it in its `buckets`"
            return documents.malformed("manifestRef", message, reference.index)
        try:
            items = documents.read(self.manifests.fetch(uri, reference.sha256))
        except ManifestUnavailable as error:
            return documents.malformed("manifestRef", str(error), reference.index)
        if len(items) != 1:
            message = f"holds a List of {len(items)}; store one document per reference"
            return documents.malformed("manifestRef", message, reference.index)
        (item,) = items
        if isinstance(item, documents.ManifestReference):
            message = "refers to another reference; store the document itself there"
            return documents.malformed("manifestRef", message, reference.index)
        return replace(item, index=reference.index)

    def record(self, judged: Judged) -> State | FailedMessage:
        """Same key and body again is a success; same key and another body is a visible conflict."""
        workload = judged.record
        try:
            created = self.create(workload, judged.token)
            if created is Created.DIFFERENT:
                workload = conflicting(workload, judged.message.id)
                created = self.create(workload, judged.token)
            if judged.token and self.completions and created is Created.SAME:
                # Nothing of the record changes, so no event would tell of one more task.
                self.completions.look([workload.task_key])
        except Exception as error:  # noqa: BLE001, one record's failure is reported, not spread
            return FailedMessage(judged.message.id, error)
        return workload.state

    def create(self, workload: Workload, token: str) -> Created:
        """First the token, so that whoever sees the record end finds it."""
        if token and self.tokens:
            self.tokens.put(workload.task_key, token)
        return self.workloads.create(workload)


def refusal_code(item: documents.Document | documents.Malformed) -> Reason:
    """Whose fault a refused submission is: the policy's, if another tenant might send the same."""
    if isinstance(item, documents.Malformed):
        return Reason.SCHEMA_INVALID
    metadata = item.body.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    anybody = tenants.unbounded(str(namespace or "default"))
    judged = submission(item, tenant=anybody, key="anybody", now_ms=0)
    return Reason.POLICY_DENIED if isinstance(judged, Accepted) else Reason.SCHEMA_INVALID


def without_token(
    item: documents.Document | documents.Malformed,
) -> tuple[documents.Document | documents.Malformed, str]:
    """What may be stored of a submission, and the token of the task that waits for it."""
    if isinstance(item, documents.Malformed):
        return item, item.token
    return replace(item, body=completion.withheld(item.body)), completion.token_of(item.body)


def tenant_of(message: Message, snapshot: CatalogSnapshot) -> Tenant | None:
    """Who sent it: the principal before the session name, or for events their granted source.

    Of an object in a cluster it is the first Tenant that has its namespace.
    """
    known = senders(snapshot)
    if message.object:
        return known.by_namespace.get(message.namespace)
    if message.from_bus:
        return known.by_source.get(event_source(message.body))
    return known.by_principal.get(principal_of(message))


def sender_of(message: Message, tenant: Tenant | None = None) -> str:
    """Whom the record names as its submitter: nothing that a document says of its user."""
    if message.object:
        return message.sender
    if message.from_bus:
        return event_source(message.body)
    return tenants.user_of(message.sender, tenant.federated_principals if tenant else ())


def principal_of(message: Message) -> str:
    """The part of the SenderId that the sender cannot choose: before the session's name."""
    return message.sender.partition(":")[0]


def event_source(body: str) -> str:
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    source = envelope.get("source") if isinstance(envelope, dict) else None
    # No table holds half a surrogate pair.
    return source.encode("utf-8", "replace").decode() if isinstance(source, str) else ""


def placed(
    found: Accepted,
    snapshot: CatalogSnapshot,
    plans: Plans = NO_PLANS,
) -> tuple[Workload, Document | None]:
    """The record in its ClusterQueue, or what of queue, priority class or size does not exist."""
    config = configured(snapshot)
    queues = config.queues
    local = queues.local_queues.get(found.queue)
    if local is None or local.cluster_queue not in queues.cluster_queues:
        namespace = found.queue.partition("/")[0]
        there = [key for key in queues.local_queues if key.startswith(f"{namespace}/")]
        known = ", ".join(sorted(key.partition("/")[2] for key in there)) or "none"
        message = f"LocalQueue {found.queue} does not exist; queues of {namespace}: {known}"
        nowhere = rejected(
            found, Reason.UNKNOWN_QUEUE, [FieldError(queue_path(found.manifest), message)]
        )
        return replace(nowhere, queue=f"{namespace}/{NO_QUEUE}"), None
    name = found.priority_class or DEFAULT_PRIORITY_CLASS
    priority = queues.priority_classes.get(name)
    if priority is None and found.priority_class:
        known = ", ".join(sorted(queues.priority_classes)) or "none"
        message = f"WorkloadPriorityClass {name} does not exist; known: {known}"
        return rejected(
            found, Reason.SCHEMA_INVALID, [FieldError(found.priority_field, message)]
        ), None
    classes = {each.name: each.value for each in queues.priority_classes.values()}
    try:
        options = pending_policy.escalating(found.options, classes)
    except pending_policy.UnknownClass as unknown:
        known = ", ".join(sorted(classes)) or "none"
        message = f"WorkloadPriorityClass {unknown.wanted} does not exist; known: {known}"
        field = f"spec.pendingPolicy[{unknown.number}].priority"
        return rejected(found, Reason.SCHEMA_INVALID, [FieldError(field, message)]), None
    if unknown_nodes := list(unknown_keys(queues, local.cluster_queue, found.node_keys)):
        errors = [FieldError(*each) for each in unknown_nodes]
        return rejected(found, Reason.POLICY_DENIED, errors), None
    root = queues.root_of(local.cluster_queue)
    ignores = config.policies.of(root).ignore_undeclared
    if problem := explain_impossible(
        queues, local.cluster_queue, found.pod_sets, ignore_undeclared=ignores
    ):
        return rejected(
            found, Reason.EXCEEDS_MAXIMUM, [FieldError("spec.resources", problem)]
        ), None
    known_kinds = kinds_somewhere(snapshot)
    if found.kind not in known_kinds:
        known = ", ".join(kind for kind in KINDS if kind in known_kinds)
        message = f"no cluster runs a {found.kind} (spec.kinds of a Cluster); accepted: {known}"
        return rejected(found, Reason.SCHEMA_INVALID, [FieldError("kind", message)]), None
    queue = queues.cluster_queues[local.cluster_queue]
    if problem := why_never(found.pod_sets, queue, plans, clusters_of(snapshot)):
        flaw = FieldError("spec.resources", problem)
        return rejected(found, Reason.REQUEST_LARGER_THAN_ANY_NODE, [flaw]), None
    needed = needed_service(found.options)
    if needed and not clusters_with_service(snapshot, needed):
        message = driver_of(found.options).without_service
        return rejected(
            found, Reason.SCHEMA_INVALID, [FieldError("spec.checkpoint.mode", message)]
        ), None
    manifest = dict(found.manifest)
    workload = record_of(found, State.PENDING)
    queued = replace(
        workload,
        cq=local.cluster_queue,
        root=root,
        priority=priority.value if priority else 0,
        priority_class=priority.name if priority else "",
        pod_sets=found.pod_sets,
        options=options,
        labels=(manifest.get("metadata") or {}).get("labels") or {},
        kind=found.kind,
    )
    size = len(canonical(to_plain(queued)).encode())
    if size > MAX_RECORD_BYTES:
        message = (
            f"labels, pod sets and options make a record of {size} bytes, more than"
            f" {MAX_RECORD_BYTES}; shorten the labels, or split the workload"
        )
        return rejected(found, Reason.SCHEMA_INVALID, [FieldError("", message)]), None
    return dependencies.blocked(queued), manifest


def sent_by(user: str, workload: Workload) -> Workload:
    """The record with its user, who is part of its shape: a pass asks caps of users by shape.

    No other is like one that runs in an object of its own.
    """
    known = replace(workload, submitted_by=user, shape_hash="")
    alone = known.state is State.REJECTED or known.object
    return known if alone else replace(known, shape_hash=shape_hash(known))


def unauthorised(message: Message, now: int, *, task: bool) -> Workload:
    """Of the body of an unknown sender nothing is stored but a task token, until it is told so.

    Administrators see the record.
    """
    place, who = "principals", "submissions to this sender"
    if message.object:
        place, who = "namespaces", f"the namespace {message.namespace}"
    elif message.from_bus:
        place = "eventSources"
    what = f"no Tenant grants {who}; an administrator adds it to spec.{place} of one"
    return Workload(
        workload_id("", message.id),
        name="",
        namespace="",
        queue=f"/{NO_QUEUE}",
        state=State.REJECTED,
        digest=digest(message.id),
        submitted_by=sender_of(message),
        created_at=now,
        finished_at=now,
        errors=(FieldError("", what),),
        reason=StatusReason(Reason.POLICY_DENIED, what),
        task=task,
        object=message.object,
    )
