"""Compiles the short fields of a Workload to the Kubernetes Job that they stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.spec_fields import amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config.spec_fields import SpecFields

CONTAINER: Final = "main"
_ARRAY: Final = re.compile(r"0-(\d{1,6})(?:%(\d{1,6}))?", re.ASCII)
_ALIASES: Final = {"gpu": "nvidia.com/gpu"}
_OVERCOMMITTED: Final = {"cpu"}  # a CPU limit only throttles; everything else is also a limit

# The fields that make a Job; with `spec.job` none of them may be used.
FIELDS: Final = (
    "image",
    "command",
    "args",
    "env",
    "workingDir",
    "resources",
    "parallelism",
    "completions",
    "array",
    "minParallelism",
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Job, and which field of the Workload each of its parts comes from."""

    job: dict[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)


def compile_job(spec: SpecFields) -> Compiled:
    """The Job of a Workload's short fields; flaws go to the reader's list."""
    container: dict[str, Any] = {"name": CONTAINER, "image": spec.text("image", required=True)}
    origins = {key: f"spec.{key}" for key in ("image", "command", "args", "workingDir")}
    for key in ("command", "args"):
        if spec.has(key):
            container[key] = list(spec.texts(key))
    if spec.has("workingDir"):
        container["workingDir"] = spec.text("workingDir")
    if spec.has("env"):
        container["env"] = _environment(spec)
        for place, entry in enumerate(container["env"]):
            origins[f"env[{place}]"] = f"spec.env.{entry['name']}"
    container["resources"] = _resources(spec)
    origins["resources.requests"] = origins["resources.limits"] = "spec.resources"
    job_spec = _size(spec)
    # Kubernetes would try six more times, with growing pauses; `recovery.onFailure.retries` asks
    # for as many as are wanted.
    job_spec["backoffLimit"] = 0
    job_spec["template"] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    first = "spec.template.spec.containers[0]."
    places = {first + key: origin for key, origin in origins.items()}
    return Compiled({"apiVersion": "batch/v1", "kind": "Job", "spec": job_spec}, places)


def _environment(spec: SpecFields) -> list[dict[str, Any]]:
    """Kubernetes' list of variables from a map of names to plain values."""
    if isinstance(spec.raw("env"), list):
        spec.wrong("env", 'must be a map of names to values; for example {"STEPS": "100"}')
        return []
    fields, found = spec.map("env"), []
    for name in fields.names():
        value = fields.raw(name)
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, str | int | float):
            fields.wrong(name, "must be text or a number")
            continue
        found.append({"name": name, "value": str(value)})
    return found


def _resources(spec: SpecFields) -> dict[str, Any]:
    """Requests as written; everything but CPU is limited to its request."""
    fields = spec.map("resources", required=True)
    requests: dict[str, str] = {}
    for key in fields.names():
        value, resource = fields.raw(key), _ALIASES.get(key, key)
        try:
            amount(resource, value)
        except ValueError as error:
            fields.wrong(key, str(error))
            continue
        requests[resource] = str(value)
    limits = {key: value for key, value in requests.items() if key not in _OVERCOMMITTED}
    return {"requests": requests} | ({"limits": limits} if limits else {})


def _size(spec: SpecFields) -> dict[str, Any]:
    """How many pods: `parallelism` and `completions`, or an array such as `0-99%10`."""
    if not spec.has("array"):
        return {
            key: spec.integer(key, 1, minimum=1)
            for key in ("parallelism", "completions")
            if spec.has(key)
        }
    completions, together = array_size(spec)
    if not completions:
        return {}
    for key in ("parallelism", "completions"):
        if spec.has(key):
            spec.wrong(key, "array says it already; keep one of the two")
        spec.ignore(key)
    return {
        "completions": completions,
        "parallelism": together,
        "completionMode": "Indexed",
    }


def array_size(spec: SpecFields) -> tuple[int, int]:
    """How many indexes `array` has, and how many run at once; (0, 0) with a flaw."""
    written = spec.text("array")
    parts = _ARRAY.fullmatch(written)
    if parts is None:
        spec.wrong(
            "array", f'{written!r:.40} is not an array; write for example "0-99" or "0-99%10"'
        )
        return 0, 0
    completions = int(parts[1]) + 1
    together = min(int(parts[2]), completions) if parts[2] else completions
    if together == 0:
        spec.wrong("array", "%0 would never run anything; write at least %1")
    return completions, max(together, 1)
