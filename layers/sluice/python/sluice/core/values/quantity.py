"""Kubernetes quantities and Go durations: text to whole base units and back."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

# In base units. No cluster comes near it, and sums stay far inside DynamoDB's 38 digits.
MAX_AMOUNT: Final = 2**63 - 1
_QUANTITY: Final = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_LONGEST: Final = 40  # digits
_LONGEST_EXPONENT: Final = 4  # e, a sign, two digits
_LONGEST_DURATION: Final = 64  # characters; looking for units takes the square of its length
_MILLISECONDS: Final = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1_000),
    "µs": Fraction(1, 1_000),
    "ms": Fraction(1),
    "s": Fraction(1_000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}


def parse_decimal(text: str | float) -> Fraction:
    """The exact value of a Kubernetes quantity such as `500m`, `1.5Gi` or `2e3`.

    Raises ValueError when the text is not a quantity.
    Source: the serialization format of resource.Quantity.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f'{text!r} is not a quantity; write for example "4", "500m" or "16Gi"')
    sign, number, suffix = match.groups(default="")
    if len(number) > _LONGEST or (suffix[:1] in {"e", "E"} and len(suffix) > _LONGEST_EXPONENT):
        raise ValueError(f"{str(text)[:40]!r} is larger or finer than any quantity can be")
    value = Fraction(number)
    if suffix in _BINARY:
        value *= 1 << _BINARY[suffix]
    elif suffix in _DECIMAL:
        value *= Fraction(10) ** _DECIMAL[suffix]
    elif suffix:
        value *= Fraction(10) ** int(suffix[1:])
    return -value if sign == "-" else value


def parse_quantity(resource: str, text: str | float) -> int:
    """A quantity in the resource's base unit: millicores for cpu, bytes or counts otherwise.

    Fractions of a base unit round up, away from zero, as resource.Quantity does.
    Raises ValueError when the text is not a quantity.
    """
    return _parse_quantity(resource, str(text))


@lru_cache(maxsize=4096)  # tens of thousands of pods ask for the same few amounts
def _parse_quantity(resource: str, text: str) -> int:
    value = parse_decimal(text) * (1000 if resource == "cpu" else 1)
    whole = -(-abs(value.numerator) // value.denominator)
    return whole if value >= 0 else -whole


def format_quantity(resource: str, amount: int) -> str:
    """The canonical Kubernetes text of an amount in the resource's base unit.

    Source: resource.Quantity's canonical form; cpu and counts are decimal, memory-like resources
    binary (`2k`, `500m`, `16Gi`).
    """
    if resource == "cpu" and amount % 1000:
        return f"{amount}m"
    whole = amount // 1000 if resource == "cpu" else amount
    if _is_bytes(resource) and abs(whole) >= 1024:  # noqa: PLR2004, below it Kubernetes is decimal
        return _shortened(whole, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    return _shortened(whole, 1000, ("", "k", "M", "G", "T", "P", "E"))


def parse_duration(text: str) -> int:
    """Whole milliseconds of a Go duration such as `90s`, `1h30m` or `1.5s`.

    Raises ValueError when the text is not a duration or is finer than a millisecond.
    """
    if text in {"0", "+0"}:
        return 0
    if len(text) > _LONGEST_DURATION:
        raise ValueError(f"{text[:40]!r}… is longer than any duration")
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'{text!r} is not a duration; write for example "90s", "100ms" or "1h30m"')
    total = sum((Fraction(number) * _MILLISECONDS[unit] for number, unit in parts), Fraction(0))
    if total.denominator != 1:
        raise ValueError(f"{text!r} is finer than a millisecond; round it to whole milliseconds")
    return total.numerator


def _is_bytes(resource: str) -> bool:
    """Whether Kueue prints the resource with binary suffixes."""
    return resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")


def _shortened(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    step = 0
    while amount and amount % base == 0 and step + 1 < len(suffixes):
        amount //= base
        step += 1
    return f"{amount}{suffixes[step]}"
