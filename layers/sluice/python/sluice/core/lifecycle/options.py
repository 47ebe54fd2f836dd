"""The part of a submission that Sluice itself acts on, read from a Workload or from annotations."""

from __future__ import annotations

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypedDict

from sluice.core.config.document import Flaw
from sluice.core.config.spec_fields import SpecFields
from sluice.core.lifecycle.completion import MAX_TOKEN
from sluice.core.values.identity import is_workload_id
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config.tenants import Tenant


class CheckpointMode(StrEnum):
    """The driver that saves a workload."""

    NONE = "none"
    APPLICATION = "application"
    KUBELET = "kubelet"
    CEDANA = "cedana"


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


class Checkpoint(TypedDict, total=False):
    """How a workload is saved; `uri` is where an application writes its own checkpoints."""

    mode: str
    signal: str
    grace_seconds: int
    interval_seconds: int
    retain: int
    uri: str


class S3Volume(TypedDict, total=False):
    """A prefix of a bucket as a folder of every container."""

    name: str
    bucket: str
    prefix: str
    region: str
    mount_path: str
    read_only: bool


class Options(TypedDict, total=False):
    """Vetted options as the workload record stores them; absent means not asked for.

    Durations in the unit of their name, money in cents. `recovery` is `{backoff_seconds,
    on_demand_after, retries, rules: [{exit_codes, action, counts_against_budget}]}`, `deadlines`
    `{max_pending_seconds, max_runtime_seconds, finish_within_seconds, expected_runtime_seconds}`,
    `placement` `[{flavor, clusters, after_pending_seconds}]`, `pending_policy` `[{reason,
    after_seconds, action, priority_class?, priority?}]`, `depends_on` `[{name | id, condition}]`,
    `security` what rendering adds to pods: `{level, run_as_user, service_account}`.
    """

    checkpoint: Checkpoint
    recovery: dict[str, Any]
    max_recoveries: int
    deadlines: dict[str, int]
    min_runtime_ms: int
    preemptible: bool
    capacity: str
    placement: list[dict[str, Any]]
    pending_policy: list[dict[str, Any]]
    depends_on: list[dict[str, str]]
    volumes: list[S3Volume]
    max_cost_cents: int
    security: dict[str, Any]


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
_MAX_GRACE: Final = 110  # of the 120 seconds between a spot notice and the end
_LONGEST: Final = 365 * 86_400

# The annotations of a plain Job or JobSet and the Workload fields that they stand for.
ANNOTATIONS: Final = {
    "sluice.dev/capacity": ("capacity",),
    "sluice.dev/max-recoveries": ("recovery", "onInterruption", "maxRecoveries"),
    "sluice.dev/max-runtime": ("deadlines", "maxRuntime"),
    "sluice.dev/checkpoint": ("checkpoint", "mode"),
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
        if route[-1] == "maxRecoveries" and str(value).isascii() and str(value).isdigit():
            value = int(str(value)[:12])
        place = spec
        for step in route[:-1]:
            place = place.setdefault(step, {})
        place[route[-1]] = value
        origin[".".join(route)] = name
    found: list[Flaw] = []
    options = read(SpecFields(spec, "", found), Tenantless)
    flaws.extend(
        Flaw("", f"{path}[{origin[flaw.field]}]" if flaw.field in origin else path, flaw.message)
        for flaw in found
    )
    return options


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
    options: Options = {}
    spec.knows(*FIELDS)
    if spec.has("checkpoint"):
        options["checkpoint"] = _checkpoint(spec.map("checkpoint"))
    if spec.has("recovery"):
        _recovery(spec.map("recovery"), options)
    if spec.has("volumes"):
        options["volumes"] = _volumes(spec, tenant)
    _preferences(spec, options)
    _time(spec, options)
    return options


def _time(spec: SpecFields, options: Options) -> None:
    """What bounds, delays or protects a workload."""
    if spec.has("deadlines"):
        options["deadlines"] = _deadlines(spec.map("deadlines"))
    if spec.has("minRuntime"):
        options["min_runtime_ms"] = 1000 * _seconds(spec, "minRuntime")
    if spec.has("pendingPolicy"):
        options["pending_policy"] = [
            _pending(entry, options) for entry in spec.specs("pendingPolicy")
        ]
    if spec.has("dependsOn"):
        options["depends_on"] = [_dependency(entry) for entry in spec.specs("dependsOn")]


def _preferences(spec: SpecFields, options: Options) -> None:
    """Where a workload may run, at whose cost, and who is told."""
    if spec.has("preemptible"):
        options["preemptible"] = spec.boolean("preemptible", default=True)
    if spec.has("capacity"):
        options["capacity"] = spec.choice("capacity", Capacity, Capacity.SPOT).value
    if spec.has("placement"):
        options["placement"] = [_placement(entry) for entry in spec.specs("placement")]
    if spec.has("budget"):
        options["max_cost_cents"] = _budget(spec.map("budget"))
    if spec.has("completion"):
        _completion(spec.map("completion"))


def _completion(fields: SpecFields) -> None:
    """Only judged here: a token is taken out before a document is stored (completion)."""
    token = fields.text("taskToken", required=True)
    if fields.has("taskToken") and not 0 < len(token) <= MAX_TOKEN:
        fields.wrong("taskToken", f"has not 1 to {MAX_TOKEN} characters, as tokens have")
    fields.close()


def _checkpoint(fields: SpecFields) -> Checkpoint:
    fields.knows("mode", "signal", "grace", "interval", "retain", "uri")
    written = fields.text("mode", CheckpointMode.APPLICATION.value)
    mode = _MODES.get(written, written)
    if mode not in set(CheckpointMode):
        fields.wrong("mode", f"{written!r} is not one of {', '.join(CheckpointMode)}")
        mode = CheckpointMode.NONE.value
    if mode == CheckpointMode.CEDANA and fields.has("signal"):
        fields.wrong("signal", "remove it: Cedana saves the processes, which hear nothing of it")
    _refuse_what_none_ignores(written, fields)
    found = Checkpoint(mode=mode)
    if fields.has("signal") or written == "signal":
        found["signal"] = fields.text("signal", "SIGUSR1")
        if _SIGNAL.fullmatch(found["signal"]) is None:
            fields.wrong("signal", "is not a signal to catch; for example SIGUSR1")
    if fields.has("grace"):
        found["grace_seconds"] = _seconds(fields, "grace", most=_MAX_GRACE)
    if fields.has("interval"):
        found["interval_seconds"] = _seconds(fields, "interval")
    if fields.has("retain"):
        found["retain"] = fields.integer("retain", 1, minimum=1)
    if fields.has("uri"):
        found["uri"] = fields.text("uri")
        if _S3.fullmatch(found["uri"]) is None:
            fields.wrong("uri", "must be s3://BUCKET/PREFIX")
    fields.close()
    return found


def _refuse_what_none_ignores(mode: str, fields: SpecFields) -> None:
    if mode == CheckpointMode.NONE:
        for each in filter(fields.has, ("signal", "interval", "retain", "uri")):
            fields.wrong(each, "remove it, or choose another mode: with none nothing is saved")


def _recovery(fields: SpecFields, options: Options) -> None:
    recovery: dict[str, Any] = {}
    interruption, failure = fields.map("onInterruption"), fields.map("onFailure")
    interruption.knows("maxRecoveries", "backoff", "onDemandAfter")
    failure.knows("retries", "rules")
    if interruption.has("maxRecoveries"):
        options["max_recoveries"] = _count(interruption, "maxRecoveries", 10_000)
    if interruption.has("onDemandAfter"):
        recovery["on_demand_after"] = _count(interruption, "onDemandAfter", 10_000)
    if interruption.has("backoff"):
        # Its quota waits with it, and is nobody else's meanwhile.
        recovery["backoff_seconds"] = _seconds(interruption, "backoff", most=3_600)
    if failure.has("retries"):
        recovery["retries"] = _count(failure, "retries", 1000)
    if failure.has("rules"):
        recovery["rules"] = [_rule(rule) for rule in failure.specs("rules")]
    for part in (interruption, failure, fields):
        part.close()
    if recovery:
        options["recovery"] = recovery


def _rule(fields: SpecFields) -> dict[str, Any]:
    codes = fields.integers("exitCodes", minimum=0, maximum=255)
    if not codes:
        fields.wrong("exitCodes", "list the exit codes that the rule is about")
    rule = {
        "exit_codes": codes,
        "action": fields.choice("action", FailureAction, FailureAction.RETRY).value,
        "counts_against_budget": fields.boolean("countsAgainstBudget", default=True),
    }
    fields.close()
    return rule


def _deadlines(fields: SpecFields) -> dict[str, int]:
    fields.knows("maxPending", "maxRuntime", "finishWithin", "expectedRuntime")
    found = {
        f"{stored}_seconds": _seconds(fields, written)
        for written, stored in (
            ("maxPending", "max_pending"),
            ("maxRuntime", "max_runtime"),
            ("finishWithin", "finish_within"),
            ("expectedRuntime", "expected_runtime"),
        )
        if fields.has(written)
    }
    if ("finish_within_seconds" in found) != ("expected_runtime_seconds" in found):
        fields.wrong("finishWithin", "and expectedRuntime go together: give both, or neither")
    fields.close()
    return found


def _placement(fields: SpecFields) -> dict[str, Any]:
    fields.knows("flavor", "clusters", "afterPending")
    found: dict[str, Any] = {"flavor": fields.name("flavor", required=True)}
    if fields.has("clusters"):
        found["clusters"] = list(fields.texts("clusters"))
    if fields.has("afterPending"):
        found["after_pending_seconds"] = _seconds(fields, "afterPending")
    fields.close()
    return found


def _pending(fields: SpecFields, options: Options) -> dict[str, Any]:
    reason = fields.text("reason", required=True)
    if reason and _REASON.fullmatch(reason) is None:
        fields.wrong("reason", 'must be a reason code or a class of them, as "CAPACITY:*"')
    elif reason and not any(fnmatchcase(code, reason) for code in _WAITS):
        fields.wrong("reason", f"nobody waits in a queue for {reason!r:.60}; see `sluice why`")
    found = {
        "reason": reason,
        "after_seconds": _seconds(fields, "after"),
        "action": fields.choice("action", PendingAction, PendingAction.NOTIFY).value,
    }
    if fields.has("priority"):
        found["priority_class"] = fields.name("priority", required=True)
    if ("priority_class" in found) != (found["action"] == PendingAction.ESCALATE):
        fields.wrong("priority", "and `action: Escalate` go together: name the class to rise to")
    on_demand = found["action"] == PendingAction.ALLOW_ON_DEMAND
    if on_demand and options.get("capacity") != Capacity.SPOT:
        fields.wrong("action", "AllowOnDemand needs `capacity: spot`: else it is allowed already")
    fields.close()
    return found


def _dependency(fields: SpecFields) -> dict[str, str]:
    named, identified = fields.name("name"), fields.name("id")
    if bool(named) == bool(identified):
        fields.wrong("name", "give either the name or the id of the workload to wait for")
    if identified and not is_workload_id(identified):
        fields.wrong("id", "is no id of a workload; those are 13 of a-z and 2-7, see `sluice ls`")
    condition = fields.choice("condition", DependencyCondition, DependencyCondition.SUCCEEDED)
    fields.close()
    who = {"name": named} if named else {"id": identified}
    return who | {"condition": condition.value}


def _volumes(spec: SpecFields, tenant: Tenant | type[Tenantless]) -> list[S3Volume]:
    volumes: list[S3Volume] = []
    for fields in spec.specs("volumes"):
        volume = _volume(fields, tenant)
        if volume["name"] in {other["name"] for other in volumes}:
            fields.wrong("name", f"{volume['name']!r} is used twice; give each volume its own name")
        if volume["mount_path"] in {other["mount_path"] for other in volumes}:
            fields.wrong("mountPath", "is used twice; mount each volume at its own path")
        volumes.append(volume)
    return volumes


def _volume(fields: SpecFields, tenant: Tenant | type[Tenantless]) -> S3Volume:
    source = fields.map("s3", required=True)
    source.knows("bucket", "prefix", "region")
    volume = S3Volume(
        name=fields.text("name", required=True),
        bucket=source.text("bucket", required=True),
        prefix=source.text("prefix"),
        mount_path=fields.text("mountPath", required=True),
        read_only=fields.boolean("readOnly", default=False),
    )
    if volume["name"] and _VOLUME.fullmatch(volume["name"]) is None:
        fields.wrong("name", "must be 1 to 30 of a-z, 0-9 and '-', starting with a letter")
    if volume["bucket"] and _BUCKET.fullmatch(volume["bucket"]) is None:
        source.wrong("bucket", "is not the name of a bucket")
    prefix = volume["prefix"]
    if _PREFIX.fullmatch(prefix) is None or ".." in prefix.split("/") or prefix.startswith("/"):
        source.wrong("prefix", "must be plain characters without spaces, no leading /, no '..'")
    elif prefix and not prefix.endswith("/"):
        volume["prefix"] = prefix + "/"
    path = volume["mount_path"]
    if path and (not path.startswith("/") or path == "/" or ".." in path.split("/") or ":" in path):
        fields.wrong("mountPath", "must be an absolute path without '..' and ':', and not /")
    if source.has("region"):
        volume["region"] = source.text("region")
        if _REGION.fullmatch(volume["region"]) is None:
            source.wrong("region", "is not an AWS Region; for example eu-west-1")
    if tenant is not Tenantless and not tenant.may_mount(volume["bucket"], volume["prefix"]):
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
