"""What breaks without each rule, and which rules only repeat another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.model.rules import AS_DESIGNED, Rules


@dataclass(frozen=True)
class Mutant:
    """Rules that are switched off, where it shows, and the invariant that it breaks first."""

    without: tuple[str, ...]
    configuration: str
    breaks: str

    @property
    def rules(self) -> Rules:
        return without(*self.without)


def without(*rules: str) -> Rules:
    return replace(AS_DESIGNED, **dict.fromkeys(rules, False))


TWO_RUN = "I3 two Jobs of one workload may run"
UNRESERVED = "I3 a Job may run without a reservation"
UNCHECKED = "I11 a Job was claimed before its checks said Ready"
UNDONE = "I4 an accepted cancel was undone"

MUTANTS = {
    # the commit
    "two_writes": Mutant(("commit_is_one_transaction",), "two_admitters", "I1 ledger (1,)"),
    "no_version": Mutant(("commit_checks_version",), "two_admitters", "I1 ledger (1,)"),
    "no_workload_condition": Mutant(
        ("commit_checks_workloads",), "preemption", "I5 terminal state left"
    ),
    "version_not_raised_on_release": Mutant(
        ("commit_raises_version_on_release",), "two_admitters", "I7"
    ),
    "admit_ignores_limits_version": Mutant(
        ("commit_checks_limits_version",), "limits", "I2 node 0 uses 2 of 1"
    ),
    "failed_release_is_dropped": Mutant(
        ("failed_release_reads_again",), "contention", "I2 node 0 uses 2 of 1"
    ),
    # the planner
    "borrow_ignores_lending": Mutant(
        ("planner_respects_lending",), "lending", "I2 node 0 uses 2 of 1"
    ),
    "borrow_ignores_ancestors": Mutant(("planner_counts_ancestors",), "two_levels", "I2 node"),
    # release
    "release_twice": Mutant(("release_checks_reservation",), "one_workload", "I9 negative cell"),
    "release_without_gone": Mutant(("release_waits_for_gone",), "migration_contention", UNRESERVED),
    "release_before_finish_mark": Mutant(
        ("release_waits_for_finish_mark",), "contention", "I6 released while it lives"
    ),
    "release_ignores_intent": Mutant(("release_checks_intent",), "contention", UNDONE),
    "gone_when_deletion_is_accepted": Mutant(("gone_is_confirmed",), "contention", UNRESERVED),
    "gone_of_an_older_generation": Mutant(
        ("gone_checks_generation",), "migration_contention", UNRESERVED
    ),
    "preempt_releases_early": Mutant(
        ("victim_keeps_reservation",), "preemption", "I6 released while it lives"
    ),
    "reclaim_ignores_ancestors": Mutant(
        ("planner_counts_ancestors",), "reclaim_over_two_levels", "I2 node 0 uses 3 of 2"
    ),
    "reclaim_releases_early": Mutant(
        ("victim_keeps_reservation",), "reclaim_over_two_levels", "I6 released while it lives"
    ),
    # dispatch
    "created_running": Mutant(("job_is_created_suspended",), "contention", UNRESERVED),
    "claim_without_state": Mutant(("claim_checks_state",), "preemption", "I5 terminal state left"),
    "claim_without_generation": Mutant(("claim_checks_generation",), "migration", UNRESERVED),
    "unsuspend_without_claim": Mutant(("unsuspend_follows_claim",), "contention", UNRESERVED),
    "unsuspend_ignores_uid": Mutant(("unsuspend_checks_uid",), "one_workload", UNRESERVED),
    # admission checks
    "claim_before_the_checks": Mutant(("claim_waits_for_checks",), "checks", UNCHECKED),
    "answer_to_an_older_generation": Mutant(
        ("checks_count_for_their_generation",), "checks_contention", UNCHECKED
    ),
    # marks
    "finish_ignores_state": Mutant(
        ("finish_checks_state",), "migration_contention", "I5 terminal state left: CANCELLED"
    ),
    "finish_ignores_generation_and_uid": Mutant(
        ("finish_checks_generation", "finish_checks_uid"), "migration_contention", UNRESERVED
    ),
    "killed_is_taken_for_failed": Mutant(
        ("failure_by_deletion_is_no_finish",), "migration", "I4 ended by its own deletion"
    ),
    "reclaim_ignores_state": Mutant(
        ("reclaim_checks_state",), "contention", "I5 terminal state left"
    ),
    "cancel_releases_a_dispatched_workload": Mutant(
        ("cancel_checks_state",), "contention", UNRESERVED
    ),
    # a cluster that is lost for good
    "declared_lost_while_it_runs": Mutant(
        ("declared_lost_is_lost",), "cluster_loss_contention", UNRESERVED
    ),
    "declared_lost_undoes_a_cancel": Mutant(
        ("declaration_keeps_a_cancel",), "cluster_loss_contention", UNDONE
    ),
    # migration
    "migrate_without_fence": Mutant(("fence_is_confirmed",), "migration_contention", TWO_RUN),
    "fence_ignores_state": Mutant(("fence_checks_state",), "migration", UNDONE),
    "migrate_releases": Mutant(("fence_moves_reservation",), "migration", "I1 a reservation came"),
    "migrate_charges_twice": Mutant(
        ("fence_skips_queue",), "migration", "I6 PENDING holds a reservation"
    ),
}

# Each of these repeats another rule: alone it may go, and the search still finds nothing.
REDUNDANT = {
    "a finish checks the uid too, and a uid belongs to one generation": "finish_checks_generation",
    "a finish checks the generation too, and only one Job of it is claimed": "finish_checks_uid",
    "a claim fails once ADMITTED is left, so the Job stays suspended for ever": (
        "cancel_of_admitted_waits_for_gone"
    ),
}
