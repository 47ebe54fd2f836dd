"""Bounds of a search: how many workloads, workers and generations, and which adversities."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.quota import Node, Tree

ONE_UNIT: Tree = (Node(parent=None, nominal=1),)


@dataclass(frozen=True)
class WorkloadSpec:
    """Every workload asks for one unit of its ClusterQueue."""

    queue: int = 0
    priority: int = 0


@dataclass(frozen=True)
class Configuration:
    """One exhaustive search; adversities that are always on are not listed.

    Always on: a crash between any two writes, lost responses, stale retries, messages that are
    delivered never or any number of times in any order, and late observations.
    """

    workloads: tuple[WorkloadSpec, ...] = (WorkloadSpec(),)
    limits: tuple[Tree, ...] = (ONE_UNIT,)  # each later tree is a concurrent edit of the former
    last_generation: int = 1
    jobs_per_generation: int = 2  # how often one Job name may be created
    admitters: int = 1
    dispatchers: int = 1  # 0: dispatch is one step that cannot fail
    cancels: bool = True
    reclaims: bool = True  # spot loss, operators, time limits
    migrates: bool = False
    preempts: bool = False
    node_loss: bool = False  # pods vanish without notice
    external_deletion: bool = False  # somebody else deletes the Job
    index_lag: bool = False  # the planner proposes from stale index rows
    checks: bool = False  # somebody outside has to say Ready to each generation
    cluster_loss: bool = False  # the first cluster is lost for good, and declared lost some day


TWO = (WorkloadSpec(), WorkloadSpec())

# Two ClusterQueues of one unit below a cohort: a unit may be borrowed across the cohort.
LENDING = (
    Node(parent=None, nominal=0),
    Node(parent=0, nominal=1),
    Node(parent=0, nominal=1),
)
NOT_LENDING = (
    Node(parent=None, nominal=0),
    Node(parent=0, nominal=1),
    Node(parent=0, nominal=1, lending_limit=0),
)
# Borrowing through two levels: queue 3 borrows within its cohort 1, then from queue 2.
TWO_LEVELS = (
    Node(parent=None, nominal=0),
    Node(parent=0, nominal=0, borrowing_limit=1),
    Node(parent=0, nominal=2, lending_limit=1),
    Node(parent=1, nominal=0),
    Node(parent=1, nominal=1),
)
# The same with one unit less, so that queue 2 has to reclaim what queue 3 has borrowed.
ALL_BORROWED = (*TWO_LEVELS[:2], Node(parent=0, nominal=1, lending_limit=1), *TWO_LEVELS[3:])
BORROWERS = (WorkloadSpec(queue=1), WorkloadSpec(queue=1), WorkloadSpec(queue=2))

CONFIGURATIONS = {
    "one_workload": Configuration(
        admitters=2,
        dispatchers=2,
        migrates=True,
        node_loss=True,
        external_deletion=True,
        index_lag=True,
    ),
    "contention": Configuration(workloads=TWO, jobs_per_generation=1),
    "two_admitters": Configuration(
        workloads=TWO, admitters=2, dispatchers=0, jobs_per_generation=1, index_lag=True
    ),
    "migration": Configuration(
        last_generation=2,
        dispatchers=2,
        jobs_per_generation=1,
        migrates=True,
        node_loss=True,
    ),
    "migration_contention": Configuration(
        workloads=TWO, dispatchers=0, jobs_per_generation=1, migrates=True, node_loss=True
    ),
    "preemption": Configuration(
        workloads=(WorkloadSpec(priority=0), WorkloadSpec(priority=1)),
        jobs_per_generation=1,
        preempts=True,
        migrates=True,
        reclaims=False,
    ),
    "checks": Configuration(dispatchers=2, jobs_per_generation=1, migrates=True, checks=True),
    "checks_contention": Configuration(
        workloads=TWO, dispatchers=0, jobs_per_generation=1, checks=True
    ),
    "cluster_loss": Configuration(
        dispatchers=2, jobs_per_generation=1, migrates=True, cluster_loss=True
    ),
    "cluster_loss_contention": Configuration(
        workloads=TWO, dispatchers=0, jobs_per_generation=1, cluster_loss=True
    ),
    "limits": Configuration(
        workloads=TWO,
        limits=((Node(parent=None, nominal=2),), ONE_UNIT),
        admitters=2,
        dispatchers=0,
        jobs_per_generation=1,
        reclaims=False,
    ),
    "borrowing": Configuration(
        workloads=BORROWERS,
        limits=(LENDING, NOT_LENDING),
        dispatchers=0,
        jobs_per_generation=1,
        last_generation=0,
    ),
    "lending": Configuration(
        workloads=BORROWERS,
        limits=(NOT_LENDING,),
        dispatchers=0,
        jobs_per_generation=1,
        last_generation=0,
    ),
    "two_levels": Configuration(
        workloads=(
            WorkloadSpec(queue=3),
            WorkloadSpec(queue=3),
            WorkloadSpec(queue=4),
            WorkloadSpec(queue=2),
        ),
        limits=(TWO_LEVELS,),
        dispatchers=0,
        jobs_per_generation=1,
        last_generation=0,
        cancels=False,
    ),
    "reclaim_over_two_levels": Configuration(
        workloads=(WorkloadSpec(queue=3), WorkloadSpec(queue=3), WorkloadSpec(2, priority=1)),
        limits=(ALL_BORROWED,),
        admitters=2,
        dispatchers=0,
        jobs_per_generation=1,
        cancels=False,
        reclaims=False,
        preempts=True,
    ),
}

# For the command line: minutes rather than seconds.
LARGE = {
    "two_workloads": Configuration(
        workloads=TWO, jobs_per_generation=1, migrates=True, node_loss=True, index_lag=True
    ),
    "two_dispatchers": Configuration(workloads=TWO, dispatchers=2, jobs_per_generation=1),
    "two_jobs_per_name": Configuration(workloads=TWO, dispatchers=1, jobs_per_generation=2),
    "three_workloads": Configuration(
        workloads=(*TWO, WorkloadSpec(priority=1)),
        limits=((Node(parent=None, nominal=2),),),
        dispatchers=0,
        jobs_per_generation=1,
        migrates=True,
        preempts=True,
    ),
}
