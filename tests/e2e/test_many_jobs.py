"""A thousand jobs in one go: all succeed, and the audit shows that quota was never exceeded."""

from __future__ import annotations

import pytest

from tests.e2e.audit import audit
from tests.e2e.stack import Stack, a_workload

pytestmark = pytest.mark.stack

JOBS = 1000


def test_a_thousand_jobs_of_a_second_all_succeed_within_quota(stack: Stack) -> None:
    queue = stack.queue("16")
    jobs = stack.submit(*(a_workload(queue, "sleep", "1", cpu="250m") for _ in range(JOBS)))

    records = stack.await_phase("SUCCEEDED", *jobs)
    stack.await_released(queue)

    found = audit(stack, queue)
    assert sorted(found.admitted) == sorted(found.released) == sorted((job, 0) for job in jobs)
    assert found.most[queue, "spot|cpu"] <= 16_000
    assert set(found.usage.values()) == {0}
    assert all(record.result.succeeded for record in records)
