"""Reads the options of a submission from the spec of a Workload or from annotations."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from sluice.core.checkpoints.driver import CheckpointMode, Connections
from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.config import pods_ready
from sluice.core.config.document import Flaw
from sluice.core.config.spec_fields import SpecFields
from sluice.core.lifecycle.completion import MAX_TOKEN
from sluice.core.lifecycle.options import (
    Capacity,
    CheckpointPolicy,
    Deadlines,
    Dependency,
    DependencyCondition,
    FailureAction,
    FailureRule,
    Options,
    PendingAction,
    PendingRule,
    PlacementRule,
    RecoveryPolicy,
    S3Volume,
)
from sluice.core.values.grace import MAX_GRACE_SECONDS
from sluice.core.values.identity import is_workload_id
from sluice.core.values.reasons import Reason
from sluice.core.values.strict_json import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config.tenants import Tenant


# The fields of a Workload's spec that are options.
FIELDS: Final = (
    "budget",
    "capacity",
    "checkpoint",
    "completion",
    "deadlines",
    "dependsOn",
    "minRuntime",
    "pendingPolicy",
    "placement",
    "preemptible",
    "recovery",
    "volumes",
    "waitForPodsReady",
)
# What peers and older documents call the drivers.
_MODES: Final = {"app": "application", "signal": "application", "criu": "kubelet"}
_SIGNAL: Final = re.compile(r"SIG(USR1|USR2|TERM|INT|HUP|RTMIN(\+\d{1,2})?)", re.ASCII)
_S3: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[!-~]{0,900})?", re.ASCII)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.*'()/=-]{0,900}", re.ASCII)
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+){1,3}-\d", re.ASCII)
_VOLUME: Final = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?", re.ASCII)
_REASON: Final = re.compile(r"[A-Z]+:(\*|[A-Za-z]+)", re.ASCII)
# Why a workload may wait in its queue: what an admission pass says.
_WAITS: Final = frozenset(
    code for code in Reason if code.partition(":")[0] not in {"DEPENDENCY", "RECOVERY", "CANCELLED"}
) - {Reason.HELD_BY_USER, Reason.HELD_BY_ADMIN, Reason.ADMISSION_CHECK}
_LONGEST: Final = 365 * 86_400

# The annotations of a plain Job or JobSet and the Workload fields that they stand for.
ANNOTATIONS: Final = {
    "sluice.dev/capacity": ("capacity",),
    "sluice.dev/max-recoveries": ("recovery", "onInterruption", "maxRecoveries"),
    "sluice.dev/max-runtime": ("deadlines", "maxRuntime"),
    "sluice.dev/checkpoint": ("checkpoint", "mode"),
    pods_ready.ANNOTATION: (pods_ready.FIELD,),
}


def from_annotations(annotations: Mapping[str, Any], flaws: list[Flaw], path: str) -> Options:
    """The options that a plain manifest's annotations ask for.

    `sluice.dev/checkpoint` is a mode, or the `s3://` address of the application's checkpoints.
    """
    spec: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, route in ANNOTATIONS.items():
        value = annotations.get(name)
        if value is None:
            continue
        if name == "sluice.dev/checkpoint" and str(value).startswith("s3://"):
            spec["checkpoint"] = {"mode": CheckpointMode.APPLICATION.value, "uri": value}
            origin["checkpoint.uri"] = name
            continue
        if name == pods_ready.ANNOTATION:
            try:
                value = pods_ready.as_field(str(value))
            except JsonError as error:
                flaws.append(Flaw("", f"{path}[{name}]", f"is no duration and no JSON: {error}"))
                continue
        if route[-1] == "maxRecoveries" and str(value).isascii() and str(value).isdigit():
            value = int(str(value)[:12])
        place = spec
        for step in route[:-1]:
            place = place.setdefault(step, {})
        place[route[-1]] = value
        origin[".".join(route)] = name
    found: list[Flaw] = []
    options = read(SpecFields(spec, "", found), Tenantless)
    flaws.extend(Flaw("", _annotated(flaw, origin, path), flaw.message) for flaw in found)
    return options


def _annotated(flaw: Flaw, origin: Mapping[str, str], path: str) -> str:
    """The annotation that a field stands in, with what of the field lies below it."""
    for field, name in origin.items():
        if flaw.field == field or flaw.field.startswith(f"{field}."):
            return f"{path}[{name}]{flaw.field[len(field) :]}"
    return path


class Tenantless:
    """Stands for a tenant where no volume can be asked for."""

    name = ""
    buckets = None

    @staticmethod
    def may_mount(bucket: str, prefix: str) -> bool:
        del bucket, prefix
        return False


def read(spec: SpecFields, tenant: Tenant | type[Tenantless]) -> Options:
    """The options in a Workload's spec; flaws go to the reader's list."""
    spec.knows(*FIELDS)
    checkpoint = _checkpoint(spec.map("checkpoint")) if spec.has("checkpoint") else None
    recovery, max_recoveries = RecoveryPolicy(), None
    if spec.has("recovery"):
        recovery, max_recoveries = _recovery(spec.map("recovery"))
    volumes = _volumes(spec, tenant) if spec.has("volumes") else ()
    chosen = _preferences(spec)
    return replace(
        chosen,
        checkpoint=checkpoint,
        recovery=recovery,
        max_recoveries=max_recoveries,
        volumes=volumes,
        wait_for_pods_ready=pods_ready.read_wait_for_pods_ready(spec),
        deadlines=_deadlines(spec.map("deadlines")) if spec.has("deadlines") else Deadlines(),
        min_runtime_ms=1000 * _seconds(spec, "minRuntime") if spec.has("minRuntime") else 0,
        pending_policy=tuple(
            _pending(entry, chosen.capacity) for entry in spec.specs("pendingPolicy")
        )
        if spec.has("pendingPolicy")
        else (),
        depends_on=tuple(_dependency(entry) for entry in spec.specs("dependsOn"))
        if spec.has("dependsOn")
        else (),
    )


def _preferences(spec: SpecFields) -> Options:
    """Where a workload may run, at whose cost, and whose task waits for it."""
    options = Options(
        preemptible=spec.boolean("preemptible", default=True),
        capacity=spec.choice("capacity", Capacity, Capacity.SPOT) if spec.has("capacity") else None,
        placement=tuple(_placement(entry) for entry in spec.specs("placement"))
        if spec.has("placement")
        else (),
        max_cost_cents=_budget(spec.map("budget")) if spec.has("budget") else None,
    )
    if spec.has("completion"):
        _completion(spec.map("completion"))
    return options


def _completion(fields: SpecFields) -> None:
    """Only judged here: a token is taken out before a document is stored (completion)."""
    token = fields.text("taskToken", required=True)
    if fields.has("taskToken") and not 0 < len(token) <= MAX_TOKEN:
        fields.wrong("taskToken", f"has not 1 to {MAX_TOKEN} characters, as tokens have")
    fields.close()


def _checkpoint(fields: SpecFields) -> CheckpointPolicy:
    fields.knows("mode", "signal", "grace", "interval", "retain", "uri", "connections")
    written = fields.text("mode", CheckpointMode.APPLICATION.value)
    mode = _MODES.get(written, written)
    if mode not in set(CheckpointMode):
        fields.wrong("mode", f"{written!r} is not one of {', '.join(CheckpointMode)}")
        mode = CheckpointMode.NONE.value
    driver = DRIVERS[CheckpointMode(mode)]
    if not driver.hears_signal and fields.has("signal"):
        name = driver.mode.capitalize()
        fields.wrong("signal", f"remove it: {name} saves the processes, which hear nothing of it")
    _refuse_what_none_ignores(written, fields)
    if not driver.closes_connections and fields.has("connections"):
        fields.wrong("connections", "remove it, or choose mode kubelet: only dumps close them")
    asks_signal = fields.has("signal") or written == "signal"
    policy = CheckpointPolicy(
        mode=CheckpointMode(mode),
        signal=fields.text("signal", "SIGUSR1") if asks_signal else "",
        grace_seconds=(
            _seconds(fields, "grace", most=MAX_GRACE_SECONDS) if fields.has("grace") else None
        ),
        interval_seconds=_seconds(fields, "interval") if fields.has("interval") else None,
        retain=fields.integer("retain", 1, minimum=1) if fields.has("retain") else None,
        uri=fields.text("uri") if fields.has("uri") else "",
        connections=(
            fields.choice("connections", Connections, Connections.CLOSE)
            if fields.has("connections")
            else None
        ),
    )
    if asks_signal and _SIGNAL.fullmatch(policy.signal) is None:
        fields.wrong("signal", "is not a signal to catch; for example SIGUSR1")
    if fields.has("uri") and _S3.fullmatch(policy.uri) is None:
        fields.wrong("uri", "must be s3://BUCKET/PREFIX")
    fields.close()
    return policy


def _refuse_what_none_ignores(mode: str, fields: SpecFields) -> None:
    if mode == CheckpointMode.NONE:
        for each in filter(fields.has, ("signal", "interval", "retain", "uri")):
            fields.wrong(each, "remove it, or choose another mode: with none nothing is saved")


def _recovery(fields: SpecFields) -> tuple[RecoveryPolicy, int | None]:
    """The policy, and how many interruptions the workload bears (None: any number)."""
    interruption, failure = fields.map("onInterruption"), fields.map("onFailure")
    interruption.knows("maxRecoveries", "backoff", "onDemandAfter")
    failure.knows("retries", "rules")
    most = None
    if interruption.has("maxRecoveries"):
        most = _count(interruption, "maxRecoveries", 10_000)
    policy = RecoveryPolicy(
        on_demand_after=_count(interruption, "onDemandAfter", 10_000)
        if interruption.has("onDemandAfter")
        else None,
        # Its quota waits with it, and is nobody else's meanwhile.
        backoff_seconds=_seconds(interruption, "backoff", most=3_600)
        if interruption.has("backoff")
        else None,
        retries=_count(failure, "retries", 1000) if failure.has("retries") else None,
        rules=tuple(_rule(rule) for rule in failure.specs("rules")) if failure.has("rules") else (),
    )
    for part in (interruption, failure, fields):
        part.close()
    return policy, most


def _rule(fields: SpecFields) -> FailureRule:
    codes = fields.integers("exitCodes", minimum=0, maximum=255)
    if not codes:
        fields.wrong("exitCodes", "list the exit codes that the rule is about")
    rule = FailureRule(
        exit_codes=tuple(codes),
        action=fields.choice("action", FailureAction, FailureAction.RETRY),
        counts_against_budget=fields.boolean("countsAgainstBudget", default=True),
    )
    fields.close()
    return rule


def _deadlines(fields: SpecFields) -> Deadlines:
    fields.knows("maxPending", "maxRuntime", "finishWithin", "expectedRuntime")

    def asked(name: str) -> int | None:
        return _seconds(fields, name) if fields.has(name) else None

    if fields.has("finishWithin") != fields.has("expectedRuntime"):
        fields.wrong("finishWithin", "and expectedRuntime go together: give both, or neither")
    found = Deadlines(
        max_pending_seconds=asked("maxPending"),
        max_runtime_seconds=asked("maxRuntime"),
        finish_within_seconds=asked("finishWithin"),
        expected_runtime_seconds=asked("expectedRuntime"),
    )
    fields.close()
    return found


def _placement(fields: SpecFields) -> PlacementRule:
    fields.knows("flavor", "clusters", "afterPending")
    found = PlacementRule(
        flavor=fields.name("flavor", required=True),
        clusters=tuple(fields.texts("clusters")) if fields.has("clusters") else (),
        after_pending_seconds=_seconds(fields, "afterPending") if fields.has("afterPending") else 0,
    )
    fields.close()
    return found


def _pending(fields: SpecFields, capacity: Capacity | None) -> PendingRule:
    reason = fields.text("reason", required=True)
    if reason and _REASON.fullmatch(reason) is None:
        fields.wrong("reason", 'must be a reason code or a class of them, as "CAPACITY:*"')
    elif reason and not any(fnmatchcase(code, reason) for code in _WAITS):
        fields.wrong("reason", f"nobody waits in a queue for {reason!r:.60}; see `sluice why`")
    rule = PendingRule(
        reason=reason,
        after_seconds=_seconds(fields, "after"),
        action=fields.choice("action", PendingAction, PendingAction.NOTIFY),
        priority_class=fields.name("priority", required=True) if fields.has("priority") else "",
    )
    if fields.has("priority") != (rule.action is PendingAction.ESCALATE):
        fields.wrong("priority", "and `action: Escalate` go together: name the class to rise to")
    if rule.action is PendingAction.ALLOW_ON_DEMAND and capacity is not Capacity.SPOT:
        fields.wrong("action", "AllowOnDemand needs `capacity: spot`: else it is allowed already")
    fields.close()
    return rule


def _dependency(fields: SpecFields) -> Dependency:
    named, identified = fields.name("name"), fields.name("id")
    if bool(named) == bool(identified):
        fields.wrong("name", "give either the name or the id of the workload to wait for")
    if identified and not is_workload_id(identified):
        fields.wrong("id", "is no id of a workload; those are 13 of a-z and 2-7, see `sluice ls`")
    condition = fields.choice("condition", DependencyCondition, DependencyCondition.SUCCEEDED)
    fields.close()
    return Dependency(condition, name=named, id="" if named else identified)


def _volumes(spec: SpecFields, tenant: Tenant | type[Tenantless]) -> tuple[S3Volume, ...]:
    volumes: list[S3Volume] = []
    for fields in spec.specs("volumes"):
        volume = _volume(fields, tenant)
        if volume.name in {other.name for other in volumes}:
            fields.wrong("name", f"{volume.name!r} is used twice; give each volume its own name")
        if volume.mount_path in {other.mount_path for other in volumes}:
            fields.wrong("mountPath", "is used twice; mount each volume at its own path")
        volumes.append(volume)
    return tuple(volumes)


def _volume(fields: SpecFields, tenant: Tenant | type[Tenantless]) -> S3Volume:
    source = fields.map("s3", required=True)
    source.knows("bucket", "prefix", "region")
    volume = S3Volume(
        name=fields.text("name", required=True),
        bucket=source.text("bucket", required=True),
        prefix=source.text("prefix"),
        region=source.text("region") if source.has("region") else "",
        mount_path=fields.text("mountPath", required=True),
        read_only=fields.boolean("readOnly", default=False),
    )
    if volume.name and _VOLUME.fullmatch(volume.name) is None:
        fields.wrong("name", "must be 1 to 30 of a-z, 0-9 and '-', starting with a letter")
    if volume.bucket and _BUCKET.fullmatch(volume.bucket) is None:
        source.wrong("bucket", "is not the name of a bucket")
    prefix = volume.prefix
    if _PREFIX.fullmatch(prefix) is None or ".." in prefix.split("/") or prefix.startswith("/"):
        source.wrong("prefix", "must be plain characters without spaces, no leading /, no '..'")
    elif prefix and not prefix.endswith("/"):
        volume = replace(volume, prefix=f"{prefix}/")
    path = volume.mount_path
    if path and (not path.startswith("/") or path == "/" or ".." in path.split("/") or ":" in path):
        fields.wrong("mountPath", "must be an absolute path without '..' and ':', and not /")
    if source.has("region") and _REGION.fullmatch(volume.region) is None:
        source.wrong("region", "is not an AWS Region; for example eu-west-1")
    if tenant is not Tenantless and not tenant.may_mount(volume.bucket, volume.prefix):
        granted = ", ".join(tenant.buckets or ()) or "none"
        source.wrong(
            "bucket",
            f"tenant {tenant.name} may not mount this bucket and prefix; its `buckets`: {granted}; "
            "take one of them, or ask an administrator for more",
        )
    source.close()
    fields.close()
    return volume


def _budget(fields: SpecFields) -> int:
    # In thousandths, as cpu is counted, so that cents are exact.
    cents = fields.amount("maxCostUSD", "cpu") // 10
    if cents == 0:
        fields.wrong("maxCostUSD", "must be an amount of dollars above 0; for example 400")
    fields.close()
    return min(cents, 10**15)


def _seconds(fields: SpecFields, key: str, *, most: int = _LONGEST) -> int:
    """Whole seconds of a duration, rounded up."""
    milliseconds = fields.duration(key, 0) or 0
    seconds = -(-milliseconds // 1000)
    if seconds > most:
        fields.wrong(key, f"is longer than {most} s; write at most {most}s")
    return seconds


def _count(fields: SpecFields, key: str, most: int) -> int:
    count = fields.integer(key, minimum=0)
    if count > most:
        fields.wrong(key, f"{count} is too large; the most is {most}")
    return count
