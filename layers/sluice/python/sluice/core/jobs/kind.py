"""What Sluice has to know of a kind of job; Job and JobSet are rows of this shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.config.document import Flaw
from sluice.core.jobs.field_rules import FieldRule

JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodSetPath:
    """Where a kind describes the pods of one pod set, or of several in a list or a map.

    `at` leads to the object, or with a last part `*` to each element of a list or a map there.
    `name` names the pod set; with `name_field` the element's own field does, and with `*` of a map
    its key in lower case. `job` leads from there to a JobSpec, whose parallelism and completions
    count; without one, `template` leads to the pod template itself. `replicas` is the field with
    the number of JobSpecs or pods (absent: 1).
    """

    at: tuple[str, ...]
    name: str = ""
    name_field: str = ""
    job: tuple[str, ...] | None = None
    template: tuple[str, ...] = ("template",)
    replicas: str = ""


@dataclass(frozen=True, slots=True)
class PodSetSpec:
    """One pod set of a manifest. `path` is where its JobSpec, or else its pod template, lies."""

    name: str
    count: int
    path: str
    template: dict[str, Any]
    job: dict[str, Any] | None
    replicas: int

    @property
    def template_path(self) -> str:
        return self.path if self.job is None else f"{self.path}.template"


@dataclass(frozen=True)
class JobKind:
    """One row of the table.

    A kind with `children` has a controller that makes Jobs of it, whose templates lie there;
    otherwise the controller makes the pods. `controller` is the service account that does.
    """

    kind: str
    group: str
    version: str
    plural: str
    pod_sets: tuple[PodSetPath, ...]
    controller: str
    fields: Mapping[str, Mapping[str, str]]
    """Type → field → treatment and shape, as in `core.intake.pod_fields`; the kind is a type."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """`Type.field` → what to do instead of a field that may not be set."""
    rules: Mapping[str, FieldRule] = field(default_factory=dict)
    """`Type.field` → the rule of a `bounded` field."""
    check: Callable[[Document, str], list[Flaw]] = lambda _manifest, _path: []
    """Flaws of several fields together; the manifest has the right shapes, `path` is its place."""
    add_on: str = ""
    """The add-on with its controller; a cluster has the kind if its Cluster object names it."""
    suspend: tuple[str, ...] = ("spec", "suspend")
    deadline: tuple[str, ...] | None = None
    """Where its longest run time lies (seconds), of a kind without JobSpecs."""
    retries: tuple[str, ...] | None = None
    """Where the number of retries lies, of a kind without JobSpecs."""
    fixed: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    """Path → the value that Sluice writes there, whatever was submitted."""
    time_to_live: tuple[str, ...] | None = ("spec", "ttlSecondsAfterFinished")
    succeeded: tuple[str, ...] = ("Succeeded",)
    """Types of the conditions that say that all of it ended well."""
    failed: tuple[str, ...] = ("Failed",)
    ends_before_its_pods: bool = False
    """Whether its status says that it ended while some of its pods may still run."""
    all_ready: Callable[[Document], bool] | None = None
    """Whether the status says that every pod is ready or done; None: count the pods."""
    children: tuple[str, ...] | None = None
    """Where the JobTemplateSpecs of its Jobs lie, in the notation of `PodSetPath.at`."""
    built_in: bool = False
    """Whether every cluster knows the kind; the others need their controller installed."""
    starts_in_place: bool = False
    """Whether an object that somebody else made is admitted, by its `suspend`."""
    partial_admission: bool = False
    """Whether fewer pods than asked for may be started (Kueue's minimum parallelism)."""
    starts_in_order: Callable[[Document], bool] = lambda _manifest: False
    """Whether some pods are made only once others run, so that they cannot start together."""
    makes_no_pods_once_deleted: bool = False
    """Whether its controller makes no pod any more once the object has a deletionTimestamp.

    Not of a kind with `children`: its Jobs are deleted later than it is.
    """
    adopts_pods: bool = False
    """Whether its controller adopts a single pod that was restored beside it."""
    completion_mode: str = "NonIndexed"
    """The default of its JobSpecs."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


def list_elements(
    manifest: Document, at: tuple[str, ...], path: str = ""
) -> Iterator[tuple[str, Any, str]]:
    """Key, element and path of what lies at `at`; of a list or map with `*`, of each element."""
    found: Any = manifest
    where = path
    for part in at:
        if part == "*":
            break
        found = (found or {}).get(part)
        where = f"{where}.{part}" if where else part
    if at and at[-1] != "*":
        yield at[-1], found, where
    elif isinstance(found, Mapping):
        for key, element in found.items():
            yield str(key), element, f"{where}.{key}"
    else:
        for place, element in enumerate(found or ()):
            yield str(place), element, f"{where}[{place}]"


def value_at(document: Document, at: tuple[str, ...]) -> Any:
    """The value at a path, or None if a part of the path is missing."""
    found: Any = document
    for part in at:
        found = (found or {}).get(part)
    return found


def set_at(document: dict[str, Any], at: tuple[str, ...], *, value: Any) -> None:
    """Sets the value at a path, making the objects on the way that are missing."""
    for part in at[:-1]:
        document = document.setdefault(part, {})
    document[at[-1]] = value


def nested(at: tuple[str, ...], *, value: Any) -> dict[str, Any]:
    """A document that holds nothing but one value, such as a patch of one field."""
    for part in reversed(at):
        value = {part: value}
    return dict(value)
