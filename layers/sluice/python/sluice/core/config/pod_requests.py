"""Counts what a Job or JobSet needs: pod sets with whole-number requests per pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

from sluice.core.config.document import Flaw
from sluice.core.config.spec_fields import amount
from sluice.core.values.quantity import MAX_AMOUNT, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JOB_POD_SET: Final = "main"
MIN_PARALLELISM: Final = ("sluice.dev/min-parallelism", "kueue.x-k8s.io/job-min-parallelism")


class PodSetRequests(TypedDict):
    """Equal pods: how many, and what each requests in base units (millicores, bytes, counts)."""

    name: str
    count: int
    requests: dict[str, int]
    min_count: NotRequired[int]


def pod_sets(
    manifest: Mapping[str, Any], flaws: list[Flaw], path: str = ""
) -> list[PodSetRequests]:
    """The pod sets of a Job or JobSet whose fields have the right shapes.

    Flaws are added with paths below `path`; the answer is complete only if there are none.
    """
    sets = [_pod_set(name, count, job, flaws, at) for name, count, job, at in jobs(manifest, path)]
    minimum = min_parallelism(manifest)
    if minimum is not None and manifest.get("kind") == "JobSet":
        text = "is for Jobs; a JobSet starts whole or not at all"
        flaws.append(Flaw("", _joined(path, f"metadata.annotations[{minimum[0]}]"), text))
    elif minimum is not None:
        least = int(minimum[1]) if minimum[1].isascii() and minimum[1][:9].isdigit() else 0
        if not 1 <= least <= sets[0]["count"]:
            text = f"must be a whole number from 1 to the {sets[0]['count']} pods of the Job"
            flaws.append(Flaw("", _joined(path, f"metadata.annotations[{minimum[0]}]"), text))
        elif least < sets[0]["count"]:
            sets[0]["min_count"] = least
    for one in sets:
        for resource, each in one["requests"].items():
            if each * one["count"] > MAX_AMOUNT:
                amounts = f"{one['count']} pods times {format_quantity(resource, each)} {resource}"
                text = f"{amounts} are more than any cluster has"
                flaws.append(Flaw("", _joined(path, "spec"), f"{text}; ask for less"))
    return sets


def jobs(
    manifest: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, int, dict[str, Any], str]]:
    """Pod set name, number of Jobs, JobSpec and its path, for each Job of a manifest."""
    spec = manifest["spec"]
    if manifest.get("kind") != "JobSet":
        yield JOB_POD_SET, 1, spec, _joined(path, "spec")
        return
    for place, entry in enumerate(spec.get("replicatedJobs") or []):
        at = _joined(path, f"spec.replicatedJobs[{place}].template.spec")
        yield entry.get("name", ""), entry.get("replicas", 1), entry["template"]["spec"], at


def min_parallelism(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """The annotation that allows partial admission, and its value."""
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    for name in MIN_PARALLELISM:
        if name in annotations:
            return name, str(annotations[name])
    return None


def parallel_pods(job: Mapping[str, Any]) -> int:
    """The most pods of one Job that run together."""
    together: int = job.get("parallelism", 1)
    completions: int | None = job.get("completions")
    return together if completions is None else min(together, completions)


def pod_requests(pod: Mapping[str, Any], flaws: list[Flaw], path: str) -> dict[str, int]:
    """What the scheduler counts for one pod: resource to amount in base units.

    Containers and sidecars run together; each init container runs beside the sidecars that were
    started before it. Pod-level requests replace the sum. A limit stands for a missing request.
    Source: Kubernetes' PodRequests.
    """
    main: dict[str, int] = {}
    for place, container in enumerate(pod.get("containers") or []):
        _add(main, _requests(container, flaws, f"{path}.containers[{place}]"))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for place, container in enumerate(pod.get("initContainers") or []):
        needed = _requests(container, flaws, f"{path}.initContainers[{place}]")
        if container.get("restartPolicy") == "Always":
            _add(sidecars, needed)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum(sidecars, needed))
    _add(main, sidecars)
    _raise_to(main, peak)
    main.update(_requests(pod, flaws, path))
    return {resource: each for resource, each in main.items() if each}


def _pod_set(
    name: str, jobs_: int, job: dict[str, Any], flaws: list[Flaw], path: str
) -> PodSetRequests:
    known = len(flaws)
    requests = pod_requests(job["template"]["spec"], flaws, f"{path}.template.spec")
    if not requests and len(flaws) == known:  # a wrong amount is not a missing one
        text = 'is missing; say what a pod needs, for example {"cpu": "1", "memory": "2Gi"}'
        field = f"{path}.template.spec.containers[0].resources.requests"
        flaws.append(Flaw("", field, text))
    return PodSetRequests(name=name, count=jobs_ * parallel_pods(job), requests=requests)


def _requests(holder: Mapping[str, Any], flaws: list[Flaw], path: str) -> dict[str, int]:
    resources = holder.get("resources") or {}
    found: dict[str, int] = {}
    for kind in ("limits", "requests"):
        for resource, value in (resources.get(kind) or {}).items():
            try:
                each = amount(resource, value)
            except ValueError as error:
                flaws.append(Flaw("", f"{path}.resources.{kind}.{resource}", str(error)))
                continue
            if kind == "requests" and each > found.get(resource, each):
                text = "is more than the limit; lower it or raise the limit"
                flaws.append(Flaw("", f"{path}.resources.requests.{resource}", text))
            found[resource] = each
    return found


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, each in more.items():
        total[resource] = total.get(resource, 0) + each


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = dict(one)
    _add(total, other)
    return total


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for resource, each in floor.items():
        total[resource] = max(total.get(resource, 0), each)


def _joined(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field
