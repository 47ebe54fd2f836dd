"""The table of kinds: what Sluice runs, and what it knows of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluice.core.jobs.job import JOB, parallel_pods
from sluice.core.jobs.jobset import JOBSET
from sluice.core.jobs.kind import Document, JobKind, PodSetSpec, list_elements, value_at
from sluice.core.jobs.training_operator import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB

KINDS: Final[Mapping[str, JobKind]] = {
    kind.kind: kind for kind in (JOB, JOBSET, PYTORCHJOB, TFJOB, XGBOOSTJOB, PADDLEJOB, JAXJOB)
}
"""By the name of the kind. The first one is meant where a manifest names none."""
EVERYWHERE: Final = frozenset(kind.kind for kind in KINDS.values() if not kind.add_on)
"""Kinds that every cluster is taken to have; the others stand in `spec.kinds` of a Cluster."""
MAKERS_OF_JOBS: Final = frozenset(kind.kind for kind in KINDS.values() if kind.children)


def kind_of(document: Document) -> JobKind:
    """The row of a job's kind."""
    kind = document.get("kind")
    return KINDS.get(kind, JOB) if isinstance(kind, str) else JOB


def list_names() -> str:
    """The kinds for a message: `a Job of batch/v1 or a JobSet of jobset.x-k8s.io/v1alpha2`."""
    *first, last = (f"a {kind.kind} of {kind.api_version}" for kind in KINDS.values())
    return f"{', '.join(first)} or {last}" if first else last


def list_pod_sets(manifest: Document, path: str = "") -> Iterator[PodSetSpec]:
    """The pod sets of a manifest whose fields have the right shapes; `path` is its place."""
    for source in kind_of(manifest).pod_sets:
        for key, element, where in list_elements(manifest, source.at, path):
            parts = source.template if source.job is None else source.job
            holder: dict[str, Any] | None = value_at(element, parts)
            if not holder:
                continue  # the kind's check has said so
            name = source.name or key.lower()
            if source.name_field:
                name = str(element.get(source.name_field) or "")
            replicas = int(element.get(source.replicas, 1)) if source.replicas else 1
            at = ".".join((where, *parts))
            if source.job is None:
                yield PodSetSpec(name, replicas, at, holder, None, replicas)
            else:
                template = holder.get("template") or {}
                count = replicas * parallel_pods(holder)
                yield PodSetSpec(name, count, at, template, holder, replicas)


def list_child_templates(manifest: Document) -> Iterator[dict[str, Any]]:
    """The JobTemplateSpecs from which the controller of this kind makes Jobs."""
    kind = kind_of(manifest)
    if kind.children is not None:
        for _, element, _ in list_elements(manifest, kind.children):
            yield element["template"]
