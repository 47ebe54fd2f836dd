"""When an ended container starts again, and after which pause."""

FIRST_SECONDS = 10.0
MOST_SECONDS = 300.0
# A container that ran this long starts its back-off anew, as in the kubelet.
RESET_AFTER_SECONDS = 600.0


def starts_again(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def pause_seconds(endings: int) -> float:
    """Seconds until the next start after that many endings in a row: 0, 10, 20, 40 … 300."""
    return min(FIRST_SECONDS * 2 ** (endings - 2), MOST_SECONDS) if endings > 1 else 0.0
