"""The fields of a submitter's document: what `Fields` reads, and strangers' numbers with bounds."""

from __future__ import annotations

import re
from typing import Any, Final

from sluice.core.config.document import Fields
from sluice.core.values.quantity import parse_decimal, parse_quantity

# Longer texts and exponents would make exact arithmetic slow before a cap could refuse them.
_AMOUNT: Final = re.compile(r"[0-9.]{1,30}([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII)
_MOST: Final = 100


def amount(resource: str, value: Any) -> int:
    """A submitter's quantity, at least 0, in the resource's base unit.

    Raises ValueError with what to change.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f'must be a quantity such as "4", "500m" or "16Gi", not {value!r:.40}')  # noqa: TRY004, one answer
    text = str(value)
    if text.startswith("-"):
        raise ValueError(f"{text[:40]} is negative; the least is 0")
    if _AMOUNT.fullmatch(text) is None:
        raise ValueError(f'{text[:40]!r} is not a quantity; write for example "4", "500m", "16Gi"')
    if resource not in {"cpu", "memory", "ephemeral-storage"} and not resource.startswith("huge"):
        whole = parse_decimal(text)
        if whole.denominator != 1:
            raise ValueError(f"{text!r} must be a whole number for {resource}")
    return parse_quantity(resource, text)


class SpecFields(Fields):
    """A map of a submission while it is read."""

    def knows(self, *keys: str) -> None:
        """Names all fields that there can be, so that unknown ones get a suggestion."""
        self._asked.update(keys)

    def specs(self, key: str) -> list[SpecFields]:
        """The maps of a list; what is too many is a flaw and left out."""
        items = self._list(key, required=False)
        if len(items) > _MOST:
            self.wrong(key, f"has too many entries; the most is {_MOST}")
            return []
        return self.maps(key)

    def integers(self, key: str, *, minimum: int, maximum: int) -> list[int]:
        """A list of whole numbers within bounds; others are flaws and left out."""
        found = []
        for i, item in enumerate(self._list(key, required=False)):
            if isinstance(item, int) and not isinstance(item, bool) and minimum <= item <= maximum:
                found.append(item)
            else:
                self.wrong(f"{key}[{i}]", f"must be a whole number from {minimum} to {maximum}")
        return found

    def amount(self, key: str, resource: str) -> int:
        """A quantity in the resource's base unit; 0 if it is absent or a flaw."""
        value = self._take(key, required=False)
        if value is None:
            return 0
        try:
            return amount(resource, value)
        except ValueError as error:
            self.wrong(key, str(error))
            return 0
