"""What a manifest says about the nodes of its pods: selector, affinity, tolerations, spread. Pure.

As in Kueue: labels and taints that flavors of the queue's resource groups define take part in the
choice of the flavor. Others are passed on if the tenant may use their key.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice.core.config.model import LabelRequirement, TaintEffect, Toleration

Document = Mapping[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A label of nodes, or with `taint` a taint, that a manifest names at `field`."""

    field: str
    key: str
    taint: bool = False


def list_keys(pod: Document, path: str) -> Iterator[NodeKey]:
    """Every key of a pod whose fields have the right shapes; `path` is its place."""
    for key in pod.get("nodeSelector") or {}:
        yield NodeKey(f"{path}.nodeSelector[{key}]", key)
    at = f"{path}.affinity.nodeAffinity"
    for number, term in enumerate(_required(pod)):
        yield from _of_term(term, f"{at}.{_REQUIRED}.nodeSelectorTerms[{number}]")
    for number, wish in enumerate(_affinity(pod).get(_PREFERRED) or ()):
        yield from _of_term(wish.get("preference") or {}, f"{at}.{_PREFERRED}[{number}].preference")
    for number, each in enumerate(pod.get("tolerations") or ()):
        yield NodeKey(f"{path}.tolerations[{number}].key", each.get("key") or "", taint=True)
    for number, each in enumerate(pod.get("topologySpreadConstraints") or ()):
        where = f"{path}.topologySpreadConstraints[{number}].topologyKey"
        yield NodeKey(where, each.get("topologyKey") or "")


def requirements(pod: Document) -> tuple[tuple[LabelRequirement, ...], ...]:
    """The required node affinity: alternatives, each of all its requirements."""
    return tuple(
        tuple(
            LabelRequirement(
                need.get("key") or "", need.get("operator") or "", tuple(need.get("values") or ())
            )
            for need in term.get("matchExpressions") or ()
        )
        for term in _required(pod)
    )


def tolerations(pod: Document) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            each.get("key") or "",
            each.get("operator") or "Equal",
            each.get("value") or "",
            TaintEffect(each["effect"]) if each.get("effect") else None,
        )
        for each in pod.get("tolerations") or ()
    )


def place(
    pod: dict[str, Any],
    labels: Mapping[str, str],
    tolerated: Iterable[Mapping[str, Any]],
    terms: Sequence[Mapping[str, Any]],
) -> None:
    """Adds to the pod's own wishes what was decided: labels, tolerations and required terms.

    `terms` are alternatives; those of the pod hold as well.
    """
    if selected := {**(pod.get("nodeSelector") or {}), **labels}:
        pod["nodeSelector"] = selected
    own = pod.get("tolerations") or []
    if more := [dict(each) for each in tolerated if each not in own]:
        pod["tolerations"] = [*own, *more]
    if not terms:
        return
    both = [
        {"matchExpressions": [*copy.deepcopy(_expressions(one)), *copy.deepcopy(_expressions(two))]}
        for one in (_required(pod) or [{}])
        for two in terms
    ]
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity[_REQUIRED] = {"nodeSelectorTerms": both}


def _expressions(term: Document) -> list[Any]:
    return list(term.get("matchExpressions") or ())


def _affinity(pod: Document) -> Document:
    affinity: Document = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity


def _required(pod: Document) -> list[Document]:
    return list((_affinity(pod).get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())


def _of_term(term: Document, path: str) -> Iterator[NodeKey]:
    for number, need in enumerate(_expressions(term)):
        yield NodeKey(f"{path}.matchExpressions[{number}].key", need.get("key") or "")
