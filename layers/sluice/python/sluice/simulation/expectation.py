"""What a scenario must give, and how a report differs from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.model import PreemptionReason
from sluice.core.values.quantity import format_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sluice.core.config.document import Fields

_SIGNED: Final = ("available",)  # negative after a quota cut, though it is reported as 0


@dataclass(frozen=True, slots=True)
class ExpectedPodSet:
    """What is said about an admitted pod set; None leaves it free."""

    count: int | None
    flavors: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must come out; a field that is None is not compared.

    `quantities` maps `available` and `potential`, where written, to node → (flavor, resource) →
    amount in base units. `ended` maps jobs that did not end by themselves to their phase,
    `clusters` admitted ones to where they went.
    """

    admitted: Mapping[str, Mapping[str, ExpectedPodSet]] | None = None
    preempted: Mapping[str, str] | None = None
    pending: frozenset[str] | None = None
    quantities: Mapping[str, Mapping[str, Mapping[tuple[str, str], int]]] | None = None
    share: Mapping[str, tuple[int, str]] | None = None
    ended: Mapping[str, str] | None = None
    clusters: Mapping[str, str] | None = None


def read_expectation(spec: Fields) -> Expectation:
    """An Expectation document's `spec`; flaws are collected by the reader."""
    return Expectation(
        admitted=_read_admitted(spec.map("admitted")) if spec.written("admitted") else None,
        preempted=_read_preempted(spec.map("preempted")) if spec.written("preempted") else None,
        pending=frozenset(spec.texts("pending")) if spec.written("pending") else None,
        quantities={
            key: _read_quantities(spec.map(key))
            for key in ("usage", "available", "potential")
            if spec.written(key)
        },
        share=_read_shares(spec.map("share")) if spec.written("share") else None,
        ended=spec.string_map("ended") if spec.written("ended") else None,
        clusters=spec.string_map("clusters") if spec.written("clusters") else None,
    )


def differences(expected: Expectation, report: Mapping[str, Any]) -> Iterator[str]:
    """One line for each difference between an expectation and a report (see `report`)."""
    yield from _admission_differences(expected, report)
    if expected.preempted is not None:
        yield from _preemption_differences(expected.preempted, report)
    if expected.pending is not None:
        pending = {one["workload"]: one for one in report["pending"]}
        for name in sorted(expected.pending - pending.keys()):
            yield f"pending: {name} is expected to wait, but does not; it {_fate(report, name)}"
        for name in sorted(pending.keys() - expected.pending):
            yield f"pending: {name} waits unexpectedly ({_why(pending[name])})"
    if expected.ended is not None:
        yield from _end_differences(expected.ended, report)
    if expected.clusters is not None:
        yield from _cluster_differences(expected.clusters, report)
    yield from _node_differences(expected, report)


def _fate(report: Mapping[str, Any], name: str) -> str:
    """What became of a workload, as far as a report tells."""
    for one in report["pending"]:
        if one["workload"] == name:
            return f"waits ({_why(one)})"
    for one in report.get("ended", ()):
        if one["workload"] == name:
            return f"ended as {one['phase']} ({_why(one)})"
    fates = (("finished", "finished"), ("preempted", "was preempted"), ("admitted", "was admitted"))
    for key, fate in fates:
        for one in report[key]:
            if one["workload"] == name:
                return f"{fate} at {one['at']:g} s"
    return "is not in the report: it keeps what it held, or there is no such workload"


def _why(pending: Mapping[str, Any]) -> str:
    return f"{pending['reason']}: {pending['message']}"


def _admission_differences(expected: Expectation, report: Mapping[str, Any]) -> Iterator[str]:
    if expected.admitted is None:
        return
    admitted = {one["workload"]: one["podSets"] for one in report["admitted"]}
    for name in sorted(expected.admitted.keys() - admitted.keys()):
        yield f"admitted: {name} is expected, but was not admitted; it {_fate(report, name)}"
    for name in sorted(admitted.keys() - expected.admitted.keys()):
        yield f"admitted: {name} was admitted unexpectedly"
    for name in sorted(admitted.keys() & expected.admitted.keys()):
        found = {one["name"]: one for one in admitted[name]}
        for pod_set, wanted in expected.admitted[name].items():
            yield from _pod_set_differences(f"{name}.{pod_set}", wanted, found.get(pod_set))


def _pod_set_differences(
    where: str, wanted: ExpectedPodSet, found: Mapping[str, Any] | None
) -> Iterator[str]:
    if found is None:
        yield f"admitted: {where}: there is no such pod set"
        return
    if wanted.count is not None and wanted.count != found["count"]:
        yield f"admitted: {where}: expected {wanted.count} pods, found {found['count']}"
    if wanted.flavors is not None and wanted.flavors != found["flavors"]:
        expected, actual = _pairs(wanted.flavors), _pairs(found["flavors"])
        yield f"admitted: {where}: expected {expected}, found {actual}"


def _preemption_differences(
    expected: Mapping[str, str], report: Mapping[str, Any]
) -> Iterator[str]:
    found = {one["workload"]: one["reason"] for one in report["preempted"]}
    by = {one["workload"]: one["by"] for one in report["preempted"]}
    for name in sorted(expected.keys() - found.keys()):
        what = f"preempted: {name} is expected ({expected[name]}), but was not"
        yield f"{what}; it {_fate(report, name)}"
    for name in sorted(found.keys() - expected.keys()):
        yield f"preempted: {name} was preempted unexpectedly ({found[name]}, by {by[name]})"
    for name in sorted(found.keys() & expected.keys()):
        if found[name] != expected[name]:
            yield f"preempted: {name}: expected {expected[name]}, found {found[name]}"


def _node_differences(expected: Expectation, report: Mapping[str, Any]) -> Iterator[str]:
    nodes = {one["name"]: one for one in (*report["clusterQueues"], *report["cohorts"])}
    for section, by_node in (expected.quantities or {}).items():
        for name, cells in by_node.items():
            yield from _quantity_differences(section, name, cells, nodes.get(name))
    for name, (value, resource) in (expected.share or {}).items():
        share = nodes[name]["share"] if name in nodes else None
        if share != {"value": value, "resource": resource}:
            found = f"{share['value']} {share['resource']}".rstrip() if share else "no such node"
            yield f"share: {name}: expected {value} {resource}".rstrip() + f", found {found}"


def _cluster_differences(expected: Mapping[str, str], report: Mapping[str, Any]) -> Iterator[str]:
    places = {one["workload"]: one.get("cluster", "none") for one in report["admitted"]}
    for name, cluster in expected.items():
        found = places.get(name, "none")
        if found != cluster:
            yield f"clusters: {name}: expected {cluster}, found {found}"


def _end_differences(expected: Mapping[str, str], report: Mapping[str, Any]) -> Iterator[str]:
    found = {one["workload"]: one for one in report.get("ended", ())}
    for name in sorted(expected.keys() - found.keys()):
        yield f"ended: {name} is expected as {expected[name]}, but it {_fate(report, name)}"
    for name in sorted(found.keys() - expected.keys()):
        yield f"ended: {name} ended unexpectedly as {found[name]['phase']} ({_why(found[name])})"
    for name in sorted(found.keys() & expected.keys()):
        if found[name]["phase"] != expected[name]:
            phase = found[name]["phase"]
            yield f"ended: {name}: expected {expected[name]}, found {phase}"


def _quantity_differences(
    section: str, name: str, cells: Mapping[tuple[str, str], int], node: Mapping[str, Any] | None
) -> Iterator[str]:
    if node is None:
        yield f"{section}: there is no ClusterQueue or Cohort {name}"
        return
    for (flavor, resource), amount in cells.items():
        wanted = max(0, amount) if section in _SIGNED else amount
        text = node[section].get(flavor, {}).get(resource)
        if text is None or parse_quantity(resource, text) != wanted:
            where = f"{section}: {name}: {resource} of {flavor}"
            expected = format_quantity(resource, wanted)
            yield f"{where}: expected {expected}, found {text or 'no quota'}"


def _read_admitted(fields: Fields) -> dict[str, dict[str, ExpectedPodSet]]:
    admitted: dict[str, dict[str, ExpectedPodSet]] = {}
    for name in fields.names():
        pod_sets = fields.map(name)
        admitted[name] = {}
        for pod_set in pod_sets.names():
            one = pod_sets.map(pod_set)
            admitted[name][pod_set] = ExpectedPodSet(
                count=one.integer("count", minimum=0) if one.has("count") else None,
                flavors=one.string_map("flavors") if one.has("flavors") else None,
            )
            one.ignore("count", "flavors")
            one.close()
    return admitted


def _read_preempted(fields: Fields) -> dict[str, str]:
    found = {}
    for name in fields.names():
        reason = fields.choice(name, PreemptionReason, PreemptionReason.IN_CLUSTER_QUEUE)
        if reason is PreemptionReason.QUEUE_DRAINED:
            fields.wrong(name, "what is drained yields to nobody; write it under pending")
        found[name] = reason.value
    return found


def _read_quantities(fields: Fields) -> dict[str, dict[tuple[str, str], int]]:
    found: dict[str, dict[tuple[str, str], int]] = {}
    for node in fields.names():
        flavors = fields.map(node)
        found[node] = {
            (flavor, resource): amount
            for flavor in flavors.names()
            for resource, amount in flavors.amounts(flavor, signed=True).items()
        }
    return found


def _read_shares(fields: Fields) -> dict[str, tuple[int, str]]:
    found = {}
    for node in fields.names():
        one = fields.map(node)
        value = one.integer("value", minimum=0, required=True)
        found[node] = (value, one.text("resource"))
        one.close()
    return found


def _pairs(flavors: Mapping[str, str]) -> str:
    return ", ".join(f"{resource}: {flavor}" for resource, flavor in sorted(flavors.items()))
