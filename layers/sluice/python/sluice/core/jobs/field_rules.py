"""Rules about single fields that need to know nothing of the tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import re

FieldRule = Callable[[Any], str | None]
"""Takes the value of a field of the right shape; returns what is wrong with it, or None."""

INT32: Final = 2**31 - 1
WEEK_SECONDS: Final = 7 * 86_400


def between(least: int, most: int) -> FieldRule:
    def rule(value: int) -> str | None:
        if least <= value <= most:
            return None
        return f"{value} is out of bounds; write a whole number from {least} to {most}"

    return rule


def one_of(*choices: str) -> FieldRule:
    def rule(value: str) -> str | None:
        return None if value in choices else f"{value[:40]!r} is not one of {', '.join(choices)}"

    return rule


def pattern(pattern: re.Pattern[str], words: str) -> FieldRule:
    def rule(value: str) -> str | None:
        return None if pattern.fullmatch(value) else f"{value[:40]!r} is not valid; use {words}"

    return rule


def list_of(least: int, most: int, what: str) -> FieldRule:
    def rule(value: list[Any]) -> str | None:
        return None if least <= len(value) <= most else f"must have {least} to {most} {what}"

    return rule


COUNT: Final = between(1, INT32)
