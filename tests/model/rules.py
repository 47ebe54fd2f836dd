"""The protocol's rules, one switch each, so that a mutant is one rule switched off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Every rule holds by default; what breaks without it is asserted in test_protocol."""

    # admit: one transaction over ledger, audit record and workloads
    commit_is_one_transaction: bool = True
    commit_checks_version: bool = True
    commit_checks_limits_version: bool = True
    commit_checks_workloads: bool = True
    commit_raises_version_on_release: bool = True
    failed_release_reads_again: bool = True
    planner_counts_ancestors: bool = True
    planner_respects_lending: bool = True
    release_checks_reservation: bool = True
    release_waits_for_gone: bool = True
    release_waits_for_finish_mark: bool = True
    release_checks_intent: bool = True
    victim_keeps_reservation: bool = True
    # act: dispatch
    job_is_created_suspended: bool = True
    claim_checks_state: bool = True
    claim_checks_generation: bool = True
    claim_waits_for_checks: bool = True
    unsuspend_follows_claim: bool = True
    unsuspend_checks_uid: bool = True
    # act and observe: marks
    gone_is_confirmed: bool = True
    gone_checks_generation: bool = True
    finish_checks_state: bool = True
    finish_checks_generation: bool = True
    finish_checks_uid: bool = True
    failure_by_deletion_is_no_finish: bool = True
    reclaim_checks_state: bool = True
    # admission checks
    checks_count_for_their_generation: bool = True
    # cancel
    cancel_of_admitted_waits_for_gone: bool = True
    cancel_checks_state: bool = True
    # a cluster that is lost for good
    declared_lost_is_lost: bool = True
    declaration_keeps_a_cancel: bool = True
    # migration
    fence_is_confirmed: bool = True
    fence_checks_state: bool = True
    fence_moves_reservation: bool = True
    fence_skips_queue: bool = True


AS_DESIGNED = Rules()
