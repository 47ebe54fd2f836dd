"""Restart policy and back-off, as the kubelet has them."""

import pytest

from local.node.restart import pause_seconds, starts_again


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [("Never", False, False), ("OnFailure", False, True), ("Always", True, True)],
)
def test_policies(policy: str, after_success: bool, after_failure: bool) -> None:
    assert starts_again(policy, 0) is after_success
    assert starts_again(policy, 1) is after_failure


def test_pauses_double_up_to_five_minutes() -> None:
    assert [pause_seconds(n) for n in range(9)] == [0, 0, 10, 20, 40, 80, 160, 300, 300]
