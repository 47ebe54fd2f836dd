"""When an ended container starts again, and after which pause."""

FIRST_SECONDS = 10.0
MOST_SECONDS = 300.0
# A container that ran this long starts its back-off anew, as in the kubelet.
RESET_AFTER_SECONDS = 600.0


def starts_again(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def pause_seconds(previous: float, ran_seconds: float) -> float:
    """Seconds to wait before the next start: 10, 20, 40 … 300; `previous` is 0 at first."""
    if not previous or ran_seconds >= RESET_AFTER_SECONDS:
        return FIRST_SECONDS
    return min(2 * previous, MOST_SECONDS)
