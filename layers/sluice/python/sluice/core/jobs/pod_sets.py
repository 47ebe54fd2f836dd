"""Counts what a job needs: pod sets with whole-number requests per pod."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.document import Flaw
from sluice.core.config.spec_fields import amount
from sluice.core.jobs.table import kind_of, list_pod_sets
from sluice.core.values.quantity import MAX_AMOUNT, format_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.jobs.kind import PodSetSpec

_DIGITS: Final = 10  # of a count
MIN_PARALLELISM: Final = ("sluice.dev/min-parallelism", "kueue.x-k8s.io/job-min-parallelism")


@dataclass(frozen=True, slots=True)
class PodSetRequests:
    """Equal pods: how many, and what each requests in base units (millicores, bytes, counts)."""

    name: str
    count: int
    requests: Mapping[str, int]
    min_count: int | None = None


def count_pod_sets(
    manifest: Mapping[str, Any], flaws: list[Flaw], path: str = ""
) -> list[PodSetRequests]:
    """The pod sets of a job whose fields have the right shapes.

    Flaws are added with paths below `path`; the answer is complete only if there are none.
    """
    sets = [_count(pod_set, flaws) for pod_set in list_pod_sets(manifest, path)]
    kind, minimum = kind_of(manifest), min_parallelism(manifest)
    if minimum is not None and not kind.partial_admission:
        text = f"is for Jobs; a {kind.kind} starts whole or not at all"
        flaws.append(Flaw("", _joined(path, f"metadata.annotations[{minimum[0]}]"), text))
    elif minimum is not None:
        digits = minimum[1].isascii() and minimum[1].isdigit() and len(minimum[1]) <= _DIGITS
        least = int(minimum[1]) if digits else 0
        if not 1 <= least <= sets[0].count:
            text = f"must be a whole number from 1 to the {sets[0].count} pods of the Job"
            flaws.append(Flaw("", _joined(path, f"metadata.annotations[{minimum[0]}]"), text))
        elif least < sets[0].count:
            sets[0] = replace(sets[0], min_count=least)
    for pod_set in sets:
        for resource, amount_per_pod in pod_set.requests.items():
            if amount_per_pod * pod_set.count > MAX_AMOUNT:
                amounts = (
                    f"{pod_set.count} pods times {format_quantity(resource, amount_per_pod)}"
                    f" {resource}"
                )
                text = f"{amounts} are more than any cluster has"
                flaws.append(Flaw("", _joined(path, "spec"), f"{text}; ask for less"))
    return sets


def min_parallelism(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """The annotation that allows partial admission, and its value."""
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    for name in MIN_PARALLELISM:
        if name in annotations:
            return name, str(annotations[name])
    return None


def pod_requests(pod: Mapping[str, Any], flaws: list[Flaw], path: str) -> dict[str, int]:
    """What the scheduler counts for one pod: resource to amount in base units.

    Containers and sidecars run together; each init container runs beside the sidecars that were
    started before it. A pod's own amounts count where they are larger. A limit
    stands for a missing request.
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
    # Kubernetes below 1.34 drops a pod's own amounts and runs its containers in full, and above it
    # they may not be smaller, so the larger of the two is counted.
    for resource, each in _requests(pod, flaws, path).items():
        main[resource] = max(each, main.get(resource, 0))
    return {resource: each for resource, each in main.items() if each}


def _count(pod_set: PodSetSpec, flaws: list[Flaw]) -> PodSetRequests:
    known = len(flaws)
    at = f"{pod_set.template_path}.spec"
    requests = pod_requests(pod_set.template["spec"], flaws, at)
    if not requests and len(flaws) == known:  # a wrong amount is not a missing one
        text = 'is missing; say what a pod needs, for example {"cpu": "1", "memory": "2Gi"}'
        flaws.append(Flaw("", f"{at}.containers[0].resources.requests", text))
    return PodSetRequests(pod_set.name, pod_set.count, requests)


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
