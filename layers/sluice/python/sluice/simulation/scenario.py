"""Reads one scenario file: Kueue's objects, listed and generated work, and the expectation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.document import DocumentError, Flaw
from sluice.core.config.kueue_objects import ConfigObjects, describe, read_objects
from sluice.core.config.model import (
    ResourceFlavor,
)
from sluice.core.config.policy import Policy
from sluice.core.config.scheduling_policy import (
    SAVE_VICTIMS_MS,
    read_admission_fair_sharing,
    read_fair_sharing,
)
from sluice.core.config.spec_fields import SpecFields
from sluice.simulation import installation as installed
from sluice.simulation.expectation import Expectation, read_expectation
from sluice.simulation.installation import Installation, read_installation
from sluice.simulation.job import Job
from sluice.simulation.load import Load, read_load
from sluice.simulation.scenario_workloads import WorkloadReader
from sluice.simulation.unsupported_fields import list_unsupported_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SLUICE_V1: Final = "sluice.dev/v1"
SIMULATION_KINDS: Final = ("Scenario", "Load", "Expectation")
MAX_PASSES: Final = 100_000
DEFAULT_START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z, for files that name no time


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file, ready to run.

    `passes` None runs until nothing more can change; `consumed` is past usage per LocalQueue in
    base units; `generated` says that a Load takes part; `notices` tell what has no effect.
    """

    name: str
    objects: ConfigObjects
    jobs: tuple[Job, ...]
    start_ms: int = DEFAULT_START_MS
    passes: int | None = None
    policy: Policy = field(default_factory=Policy)
    consumed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    expectation: Expectation | None = None
    generated: bool = False
    installation: Installation = field(default_factory=Installation)
    notices: tuple[str, ...] = ()

    def policy_of(self, root: str) -> Policy:
        """The settings of a root cohort: its SchedulingPolicy's, where the file has any."""
        stated = self.installation.policies
        return self.policy if stated is None else stated.of(root)

    def save_victims_ms(self, root: str) -> int:
        """How long a victim's dump is waited for, as its SchedulingPolicy says or by default."""
        stated = self.installation.policies
        return SAVE_VICTIMS_MS if stated is None else stated.save_victims_ms(root)

    def catalog(self) -> QueueCatalog:
        """The file's queues; what checks answer counts only if the Scenario says it."""
        objects, installation = self.objects, self.installation
        return QueueCatalog(
            flavors=objects.resource_flavors,
            cohorts=objects.cohorts,
            cluster_queues=objects.cluster_queues,
            local_queues=objects.local_queues,
            priority_classes=objects.priority_classes,
            budgets=installation.budgets,
            admission_checks=None if installation.answers is None else objects.admission_checks,
        )

    @property
    def capacity(self) -> dict[str, int]:
        """The sum of all nominal quotas, per resource and in base units."""
        capacity: dict[str, int] = {}
        groups = [group for queue in self.objects.cluster_queues for group in queue.resource_groups]
        groups += [group for cohort in self.objects.cohorts for group in cohort.resource_groups]
        for group in groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources.items():
                    capacity[resource] = capacity.get(resource, 0) + quota.nominal
        return capacity


def parse_scenario(documents: Iterable[Any], default_name: str) -> Scenario:
    """One file's documents, as a YAML parser returned them.

    Raises DocumentError with every flaw found.
    """
    flaws: list[Flaw] = []
    ours: list[tuple[str, Any]] = []
    applied: list[tuple[str, Any]] = []
    kueue: list[tuple[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        if document is not None:
            kind = document.get("kind") if isinstance(document, dict) else None
            known = ours if kind in SIMULATION_KINDS else kueue
            (applied if kind in installed.KINDS else known).append(
                (describe(number, document), document)
            )
    objects = read_objects(kueue, flaws, also=(*installed.KINDS, *SIMULATION_KINDS))
    installation = read_installation(applied, flaws)
    scenario = Scenario(name="", objects=objects, jobs=(), installation=installation)
    loads: list[tuple[str, Load]] = []
    seen: set[str] = set()
    for label, document in ours:
        fields = SpecFields(document, label, flaws)
        kind, name, spec = _heading(fields)
        if kind != "Load" and kind in seen:
            fields.wrong("kind", f"is the second {kind}; one file holds at most one")
        seen.add(kind)
        if kind == "Scenario":
            read = _read_scenario(objects, installation, spec)
            scenario = replace(read, name=name, expectation=scenario.expectation)
        elif kind == "Load":
            # A SchedulingPolicy states the minimum runtime.
            stated = {} if installation.policies is None else {"min_run_ms": 0}
            loads.append((label, read_load(name or f"load-{len(loads) + 1}", spec, **stated)))
        else:
            scenario = replace(scenario, expectation=read_expectation(spec))
        spec.close()
        fields.close()
    if flaws:
        raise DocumentError(flaws)
    name = scenario.name or (loads[0][1].name if loads else default_name)
    complete = _with_loads(replace(scenario, name=name), loads, flaws)
    flaws += _shared_names(complete.objects)
    flaws += installed.problems(complete.installation, complete.catalog())
    if flaws:
        raise DocumentError(flaws)
    return _with_notices(complete, (*kueue, *applied))


def _with_notices(scenario: Scenario, labelled: Iterable[tuple[str, Any]]) -> Scenario:
    """With notices; queues select every namespace where nobody says what labels there are."""
    labels, answers = scenario.installation.labels, scenario.installation.answers
    unsupported = list_unsupported_fields(
        labelled,
        answered=answers is not None,
        namespaces=labels is not None,
        shared=scenario.policy.fair_sharing is not None,
    )
    objects = scenario.objects
    if labels is None:
        queues = tuple(
            replace(
                queue,
                namespace_selector=queue.namespace_selector and {},
                namespace_expressions=(),
            )
            for queue in objects.cluster_queues
        )
        objects = replace(objects, cluster_queues=queues)
    return replace(scenario, objects=objects, notices=tuple(unsupported))


def _heading(fields: SpecFields) -> tuple[str, str, SpecFields]:
    """The kind, name and spec of one of our documents."""
    version = fields.text("apiVersion", required=True)
    if version not in {"", SLUICE_V1}:
        fields.wrong("apiVersion", f"{version!r} must be {SLUICE_V1}")
    return fields.text("kind"), fields.map("metadata").name("name"), fields.map("spec")


def _with_loads(scenario: Scenario, loads: list[tuple[str, Load]], flaws: list[Flaw]) -> Scenario:
    """Adds the generated queues and jobs; names that exist already are flaws of their Load."""
    objects = scenario.objects
    flavors = {one.name: one for one in objects.resource_flavors}
    queues = {one.name: one for one in objects.cluster_queues}
    jobs = {one.workload.id: one for one in scenario.jobs}
    for label, load in loads:
        flavors.setdefault(load.flavor, ResourceFlavor(load.flavor))
        new_queues = {one.name: one for one in load.cluster_queues()}
        new_jobs = {one.workload.id: one for one in load.jobs(scenario.start_ms)}
        for kind, old, new in (
            ("ClusterQueue", queues.keys(), new_queues.keys()),
            ("workload", jobs.keys(), new_jobs.keys()),
        ):
            if taken := min(old & new, default=None):
                message = f"it makes a {kind} {taken}, which there is already; rename one of them"
                flaws.append(Flaw(label, "metadata.name", message))
        queues |= new_queues
        jobs |= new_jobs
    return replace(
        scenario,
        objects=replace(
            objects,
            resource_flavors=tuple(flavors.values()),
            cluster_queues=tuple(queues.values()),
        ),
        jobs=tuple(jobs.values()),
        generated=bool(loads),
    )


def _shared_names(objects: ConfigObjects) -> Iterator[Flaw]:
    """ClusterQueues called like a cohort; reports and limits could not tell the two apart."""
    cohorts = {one.name for one in objects.cohorts}
    cohorts |= {one.parent for one in objects.cohorts if one.parent is not None}
    cohorts |= {one.cohort for one in objects.cluster_queues if one.cohort is not None}
    for queue in objects.cluster_queues:
        if queue.name in cohorts:
            message = "is a cohort's name, too; rename one of them"
            yield Flaw(f"ClusterQueue {queue.name}", "metadata.name", message)


def _read_scenario(
    objects: ConfigObjects, installation: Installation, spec: SpecFields
) -> Scenario:
    """A Scenario's `spec` against the objects of the same file."""
    start_ms = spec.instant("start", DEFAULT_START_MS)
    reader = WorkloadReader(objects, spec)
    return Scenario(
        name="",
        objects=objects,
        start_ms=start_ms,
        passes=spec.integer("passes", minimum=1, maximum=MAX_PASSES)
        if spec.has("passes")
        else None,
        policy=Policy(
            fair_sharing=read_fair_sharing(spec),
            admission_fair_sharing=read_admission_fair_sharing(spec),
        ),
        consumed=_consumed(spec, reader),
        jobs=reader.jobs(start_ms),
        installation=installed.of_scenario(installation, spec, objects),
    )


def _consumed(spec: SpecFields, reader: WorkloadReader) -> dict[str, dict[str, int]]:
    consumed = {}
    for one in spec.maps("localQueueUsage"):
        key = reader.local_queue(one, required=True)
        consumed[key] = one.amounts("consumed", required=True)
        one.close()
    return consumed
