"""What of an installation beside its queues takes part in a simulation.

Policies, budgets and clusters are the documents that `apply` takes; how admission checks answer
and what labels namespaces have, a Scenario says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.clusters import cluster_spec
from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.fallback import Market, kinds_of
from sluice.core.clusters.fleet import Site
from sluice.core.clusters.machine_sizes import MachineSize
from sluice.core.clusters.placement import Health
from sluice.core.config import scheduling_policy
from sluice.core.config.document import Fields, Flaw
from sluice.core.config.model import BUDGET_CHECK, CheckState
from sluice.core.config.scheduling_policy import Policies, SchedulingPolicy, policies
from sluice.core.jobs.table import KINDS as JOB_KINDS
from sluice.core.passes import budget_charges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.clusters.cluster_spec import ClusterSpec
    from sluice.core.config.budget import Budget
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.kueue_objects import ConfigObjects
    from sluice.core.config.model import ResourceFlavor

KINDS: Final = (scheduling_policy.KIND, budget_charges.KIND, cluster_spec.KIND)


@dataclass(frozen=True, slots=True)
class Answers:
    """How one check answers: `states` in turn to each question of a workload, the last for ever.

    `workloads` empty: to everybody; `after_ms` is how long an answer takes.
    """

    check: str
    states: tuple[CheckState, ...]
    after_ms: int = 0
    workloads: frozenset[str] = frozenset()

    def to(self, question: int) -> CheckState:
        """The answer to the n-th question, counted from 0."""
        return self.states[min(question, len(self.states) - 1)]


@dataclass(frozen=True, slots=True)
class Installation:
    """Without any of it, a simulation is of the queues alone.

    `policies` None: the Scenario's own settings count for every root; `stated` are the documents
    behind them. `answers` None: checks count
    as ready. `clusters` empty: there is one place that takes everything.
    """

    policies: Policies | None = None
    stated: tuple[SchedulingPolicy, ...] = ()
    budgets: tuple[Budget, ...] = ()
    clusters: Mapping[str, ClusterSpec] = field(default_factory=dict)
    answers: tuple[Answers, ...] | None = None
    labels: Mapping[str, Mapping[str, str]] | None = None
    machines: Mapping[str, tuple[MachineSize, ...]] = field(default_factory=dict)
    """Flavor → the largest machines that can be had of it; absent: nobody knows."""

    def sites(self, flavors: Mapping[str, ResourceFlavor]) -> list[Site]:
        """The clusters with stated prices; the one place without a name if there are none."""
        rates = {name: flavor.rates for name, flavor in flavors.items() if flavor.rates}
        return [
            Site(
                name,
                frozenset(spec.flavors or flavors),
                Health.CORDONED if spec.cordoned else Health.READY,
                spec.locations,
                {f: rate for f, rate in rates.items() if f in (spec.flavors or flavors)},
                services=frozenset(spec.services),
                kinds=spec.kinds,
            )
            for name, spec in sorted(self.clusters.items())
        ] or [
            Site(
                "",
                frozenset(flavors),
                rates=rates,
                services=frozenset(DRIVERS),
                kinds=frozenset(JOB_KINDS),
            )
        ]

    def market(self, flavors: Mapping[str, ResourceFlavor], now: int) -> Market:
        """What is offered; nothing is ever sold out."""
        offers = {n: spec.flavors for n, spec in self.clusters.items() if not spec.cordoned}
        pools = [PoolPlan(name, (name,), (), largest=own) for name, own in self.machines.items()]
        if pools and not offers:
            offers = {"": ()}
        return Market(offers, kinds_of(flavors, {}), {}, now, dict.fromkeys(offers, pools))

    def answer(self, check: str, workload: str) -> Answers | None:
        """Who answers a check for a workload; what is written first counts."""
        return next(
            (
                each
                for each in self.answers or ()
                if each.check == check and (not each.workloads or workload in each.workloads)
            ),
            None,
        )


def anywhere(flavors: Mapping[str, ResourceFlavor], rates: Mapping[str, Any]) -> Site:
    """The one place without a name, which has everything."""
    return Site(
        "",
        frozenset(flavors),
        rates=rates,
        services=frozenset(DRIVERS),
        kinds=frozenset(JOB_KINDS),
    )


def read_installation(
    labelled: Iterable[tuple[str, Mapping[str, Any]]], flaws: list[Flaw]
) -> Installation:
    """The documents of `KINDS`."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for label, document in labelled:
        fields = Fields(document, label, flaws)
        kind = str(document["kind"])
        name = str((document.get("metadata") or {}).get("name"))
        if name in found[kind]:
            fields.wrong("metadata.name", f"{kind} {name} is defined twice; rename one")
        found[kind][name] = _READERS[kind](fields)
    stated = tuple(found[scheduling_policy.KIND].values())
    return Installation(
        policies=policies(stated) if stated else None,
        stated=stated,
        budgets=tuple(found[budget_charges.KIND].values()),
        clusters=found[cluster_spec.KIND],
    )


_READERS: Final[Mapping[str, Callable[[Fields], Any]]] = {
    scheduling_policy.KIND: scheduling_policy.read,
    budget_charges.KIND: budget_charges.read,
    cluster_spec.KIND: cluster_spec.read,
}


def of_scenario(installation: Installation, spec: Fields, objects: ConfigObjects) -> Installation:
    """The installation with what a Scenario says of checks and namespaces."""
    labels = None
    if spec.written("namespaceLabels"):
        namespaces = spec.map("namespaceLabels")
        labels = {name: namespaces.string_map(name) for name in namespaces.names()}
    answers = None
    if spec.written("admissionChecks"):
        answers = tuple(_answers(one, objects) for one in spec.maps("admissionChecks"))
        for check in sorted(_asked(objects) - {one.check for one in answers}):
            spec.wrong("admissionChecks", f"nobody answers {check}; add an entry with its name")
    if installation.policies is not None:
        for key in ("fairSharing", "admissionFairSharing"):
            if spec.has(key):
                spec.wrong(key, "the SchedulingPolicy says it; keep one of the two")
    machines = {}
    if spec.written("machines"):
        listed = spec.map("machines")
        machines = {name: tuple(map(_machine, listed.maps(name))) for name in listed.names()}
    return replace(installation, answers=answers, labels=labels, machines=machines)


def _machine(fields: Fields) -> MachineSize:
    devices = fields.map("devices")
    found = MachineSize(
        fields.text("type", required=True),
        fields.quantity("cpu", "cpu") or 0,
        fields.quantity("memory", "memory") or 0,
        {name: devices.quantity(name, name) or 0 for name in devices.names()},
    )
    fields.close()
    return found


def problems(installation: Installation, catalog: QueueCatalog) -> Iterator[Flaw]:
    """What of it names something that there is not."""
    for problem in scheduling_policy.problems(installation.stated, catalog):
        yield Flaw(f"{problem.kind} {problem.name}", problem.field, problem.message)
    for problem in catalog.problems:
        if problem.kind == budget_charges.KIND:
            yield Flaw(f"{problem.kind} {problem.name}", problem.field, problem.message)
    for name, spec in installation.clusters.items():
        for flavor in spec.flavors:
            if flavor not in catalog.flavors:
                known = ", ".join(catalog.flavors) or "none"
                message = f"no ResourceFlavor is named {flavor}; known: {known}"
                yield Flaw(f"Cluster {name}", "spec.flavors", message)


def _asked(objects: ConfigObjects) -> set[str]:
    """Checks of queues that need an answer from outside."""
    own = {one.name for one in objects.admission_checks if one.controller == BUDGET_CHECK}
    return {name for queue in objects.cluster_queues for name in queue.admission_checks} - own


def _answers(fields: Fields, objects: ConfigObjects) -> Answers:
    name, known = fields.name("name", required=True), [c.name for c in objects.admission_checks]
    if name and name not in known:
        fields.wrong("name", f"no AdmissionCheck is named {name}; known: {', '.join(known) or '-'}")
    states = []
    for text in fields.texts("answers"):
        if text in _SAID:
            states.append(CheckState(text))
        else:
            fields.wrong("answers", f"{text!r} is not one of {', '.join(_SAID)}")
    if states[-1:] == [CheckState.RETRY]:
        fields.wrong("answers", "Retry cannot be the last answer, it would be given for ever")
    found = Answers(
        name,
        tuple(states) or (CheckState.READY,),
        fields.duration("after", 0) or 0,
        frozenset(fields.texts("workloads")),
    )
    fields.close()
    return found


_SAID: Final = (CheckState.READY, CheckState.RETRY, CheckState.REJECTED)
