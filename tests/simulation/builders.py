"""Scenario documents in few words: a case shows only the detail that matters.

Quotas are written `cpu=10` or `cpu=(10, borrowing, lending)`, with None for no limit; one flavor
`default` unless `flavors` names several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.simulation.engine import Simulation
from sluice.simulation.report import report
from sluice.simulation.scenario import parse_scenario

Json = dict[str, Any]
Quota = int | str | tuple[int | str | None, ...]
KUEUE = "kueue.x-k8s.io/v1beta2"
LONG_AGO = "2026-01-01T00:00:00Z"
START = "2026-01-01T01:00:00Z"
FAIR: Json = {"fairSharing": {}}


def _groups(groups: Sequence[Mapping[str, Mapping[str, Quota]]]) -> list[Json]:
    return [
        {
            "coveredResources": list(next(iter(group.values()))),
            "flavors": [
                {"name": flavor, "resources": [_quota(*pair) for pair in quotas.items()]}
                for flavor, quotas in group.items()
            ],
        }
        for group in groups
    ]


def _quota(resource: str, quota: Quota) -> Json:
    parts = quota if isinstance(quota, tuple) else (quota,)
    keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
    limits = {key: str(part) for key, part in zip(keys, parts, strict=False) if part is not None}
    return {"name": resource, **limits}


def _spec(groups: Sequence[Mapping[str, Mapping[str, Quota]]], quotas: Mapping[str, Quota]) -> Json:
    if quotas:
        groups = [{"default": quotas}, *groups]
    return {"resourceGroups": _groups(groups)} if groups else {}


def queue(
    name: str,
    cohort: str | None = None,
    *groups: Mapping[str, Mapping[str, Quota]],
    spec: Json | None = None,
    **quotas: Quota,
) -> Json:
    """A ClusterQueue; `groups` map flavor to quotas, `spec` adds or replaces fields."""
    named = {"cohortName": cohort} if cohort else {}
    body = {"namespaceSelector": {}, **named, **_spec(groups, quotas), **(spec or {})}
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": body}


def cohort(
    name: str,
    parent: str | None = None,
    *groups: Mapping[str, Mapping[str, Quota]],
    spec: Json | None = None,
    **quotas: Quota,
) -> Json:
    named = {"parentName": parent} if parent else {}
    body = {**named, **_spec(groups, quotas), **(spec or {})}
    return {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": body}


def local_queue(key: str, cluster_queue: str, **spec: Any) -> Json:
    namespace, name = key.split("/")
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue, **spec},
    }


def preemption(within: str = "Never", reclaim: str = "Never", borrow: Json | None = None) -> Json:
    """The `preemption` part of a ClusterQueue's spec."""
    rules: Json = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
    return {"preemption": rules | ({"borrowWithinCohort": borrow} if borrow else {})}


def waiting(name: str, queue: str, priority: int = 0, *, at: int = 0, **requests: Any) -> Json:
    """A waiting workload of one pod, created `at` seconds after the others."""
    fields = {key: requests.pop(key) for key in _WORKLOAD_KEYS & requests.keys()}
    pods = {key: requests.pop(key) for key in ("count", "minCount") if key in requests}
    where = {"localQueue": queue} if "/" in queue else {"clusterQueue": queue}
    if "pod_sets" in fields:
        fields["podSets"] = fields.pop("pod_sets")
    else:
        quantities = {resource: str(amount) for resource, amount in requests.items()}
        fields["podSets"] = [{"name": "main", "count": 1, **pods, "requests": quantities}]
    return {
        "name": name,
        **where,
        "priority": priority,
        "createdAt": f"2026-01-01T00:{30 + at // 60:02d}:{at % 60:02d}Z",
        **fields,
    }


_WORKLOAD_KEYS = {"pod_sets", "runtime", "arrivesAfter"}


def running(
    name: str, queue: str, priority: int = 0, *, flavor: str = "default", at: int = 0, **rest: Any
) -> Json:
    """A workload that holds quota of one flavor since `at` seconds after midnight."""
    workload = waiting(name, queue, priority, **rest)
    since = f"2026-01-01T00:{at // 60:02d}:{at % 60:02d}Z"
    flavors = {
        pods["name"]: dict.fromkeys(pods["requests"], flavor) for pods in workload["podSets"]
    }
    return {**workload, "createdAt": since, "holds": {"since": since, "flavors": flavors}}


@dataclass(frozen=True)
class Result:
    """What the assertions of a case look at."""

    report: Json

    @property
    def admitted(self) -> dict[str, Any]:
        """Workload → its only flavor, or the flavors and counts if there is more to say."""
        return {one["workload"]: _brief(one["podSets"]) for one in self.report["admitted"]}

    @property
    def counts(self) -> dict[str, list[int]]:
        return {
            one["workload"]: [pods["count"] for pods in one["podSets"]]
            for one in self.report["admitted"]
        }

    @property
    def order(self) -> list[str]:
        return [one["workload"] for one in self.report["admitted"]]

    @property
    def preempted(self) -> dict[str, str]:
        return {one["workload"]: one["reason"] for one in self.report["preempted"]}

    @property
    def pending(self) -> set[str]:
        return {one["workload"] for one in self.report["pending"]}

    @property
    def reasons(self) -> dict[str, str]:
        return {one["workload"]: one["reason"] for one in self.report["pending"]}

    def node(self, name: str) -> Json:
        nodes = (*self.report["clusterQueues"], *self.report["cohorts"])
        return next(one for one in nodes if one["name"] == name)

    def share(self, name: str) -> tuple[int, str]:
        share = self.node(name)["share"]
        return share["value"], share["resource"]

    def cpu(self, what: str, *names: str) -> list[str]:
        """`available`, `potential` or `usage` of the default flavor's CPU."""
        return [self.node(name)[what]["default"]["cpu"] for name in names]


def _brief(pod_sets: list[Json]) -> Any:
    flavors = [tuple(dict.fromkeys(pods["flavors"].values())) for pods in pod_sets]
    alike = set(flavors)
    if len(alike) == 1 and len(flavors[0]) == 1:
        return flavors[0][0]
    return [pods["flavors"] for pods in pod_sets]


def documents(*parts: Json, passes: int | None = 1, **spec: Any) -> list[Json]:
    """Objects and workloads as the documents of one file, with the flavors that they name."""
    objects = [part for part in parts if "kind" in part]
    names = {
        flavor["name"]: None
        for one in objects
        for group in one["spec"].get("resourceGroups", [])
        for flavor in group["flavors"]
    }
    given = {one["metadata"]["name"] for one in objects if one["kind"] == "ResourceFlavor"}
    flavors = [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}}
        for name in names
        if name not in given
    ]
    workloads = [part for part in parts if "kind" not in part]
    body = {"start": START, "workloads": workloads, **spec}
    if passes is not None:
        body["passes"] = passes
    scenario = {
        "apiVersion": "sluice.dev/v1",
        "kind": "Scenario",
        "metadata": {"name": "case"},
        "spec": body,
    }
    return [*flavors, *objects, scenario]


def simulate(
    *parts: Json,
    passes: int | None = 1,
    latency: int = 0,
    until: int | None = None,
    **spec: Any,
) -> Result:
    """Runs objects and workloads; latency and until in milliseconds."""
    scenario = parse_scenario(documents(*parts, passes=passes, **spec), "case")
    simulation = Simulation(scenario, commit_latency_ms=latency, until_ms=until)
    return Result(report(scenario, simulation.run()))
