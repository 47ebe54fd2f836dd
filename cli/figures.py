"""Figures as people write and read them: durations, ages, quantities."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
DAY, HOUR, MINUTE = 86_400, 3_600, 60
MANY_HOURS = 100


def seconds(text: str) -> float:
    """Reads `90`, `90s`, `1h30m`, `2d`, `250ms`. Raises ValueError for anything else."""
    if text.replace(".", "", 1).isdigit():
        return float(text)
    parts = DURATION.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write for example 90s, 15m, 1h30m or 2d")
    return sum(
        float(amount) / 1_000 if unit == "ms" else float(amount) * UNIT_SECONDS[unit]
        for amount, unit in parts
    )


def span(length: float | None) -> str:
    """A length of time in seconds, as kubectl prints it: `42s`, `3m12s`, `5h40m`, `3d4h`."""
    if length is None:
        return ""
    whole = max(0, round(length))
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE}s" if whole % MINUTE else f"{whole // MINUTE}m"
    if whole < DAY:
        rest = whole % HOUR // MINUTE
        return f"{whole // HOUR}h{rest}m" if rest else f"{whole // HOUR}h"
    rest = whole % DAY // HOUR
    return f"{whole // DAY}d{rest}h" if rest else f"{whole // DAY}d"


def between(start_ms: int | None, end_ms: int | None) -> str:
    """The time between two instants in epoch ms; empty while either is unknown."""
    if not start_ms or not end_ms:
        return ""
    return span((end_ms - start_ms) / 1_000)


def moment(at_ms: int) -> str:
    """An instant in epoch ms, as UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def amounts(request: Mapping[str, str]) -> str:
    """Resources in one cell: `cpu=32,memory=64Gi`."""
    return ",".join(f"{name}={amount}" for name, amount in request.items())


def cores(quantity: str) -> str:
    """A CPU quantity as a number of cores: `67690m` is `67.7`."""
    return f"{int(quantity[:-1]) / 1_000:.1f}" if quantity.endswith("m") else quantity


def dollars(amount: float | None) -> str:
    return "" if amount is None else f"${amount:,.2f}"


def cost(amount: float) -> str:
    """Dollars, to ten-thousandths below one: a small job costs less than a cent."""
    digits = 4 if 0 < abs(amount) < 1 else 2
    return f"${amount:,.{digits}f}"


def hours(length: float) -> str:
    """Seconds as hours with as many digits as are worth reading: `0.0063`, `2.41`, `1,812`."""
    value = length / HOUR
    if value >= MANY_HOURS:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 or not value else f"{value:.4f}"
