"""Reads typed fields out of parsed documents and collects what is wrong, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Self, TypeVar

from sluice.core.values.quantity import (
    MAX_AMOUNT,
    parse_decimal,
    parse_duration,
    parse_quantity,
)

_LEAST_WEIGHT: Final = Fraction(1, 10**9)
_EXPLAINED: Final = 10  # flaws that get a suggestion; finding one costs time
_EXPLAINED_LENGTH: Final = 64  # of a name; no known one is longer
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Flaw:
    """One mistake: the document (`document 3 (ClusterQueue cq)`), the field's path, what to do."""

    document: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.document, self.field, self.message) if part)


class DocumentError(ValueError):
    """Documents that cannot be used; `flaws` lists everything that is wrong with them."""

    def __init__(self, flaws: Iterable[Flaw]) -> None:
        self.flaws = tuple(dict.fromkeys(flaws))  # a field that is read twice is wrong once
        super().__init__("\n".join(map(str, self.flaws)))


class Fields:
    """One map of a document while it is read.

    Every reader method returns a usable value even when the field is wrong, so that one reading
    finds all flaws; `close` reports the keys that nobody asked for.
    """

    def __init__(self, value: Any, document: str, flaws: list[Flaw], path: str = "") -> None:
        self.document, self.path, self._flaws = document, path, flaws
        self._asked: set[str] = set()
        self._values: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            self._values = value
        elif value is not None:
            self._flaw(path, f"must be a map, not {_described(value)}")

    def wrong(self, key: str, message: str) -> None:
        """Records a flaw of a field that was read well enough but makes no sense."""
        self._flaw(self._at(key), message)

    def has(self, key: str) -> bool:
        """Whether the field is written and not null."""
        return self._values.get(key) is not None

    def written(self, key: str) -> bool:
        """Whether the key is there, even with nothing behind it."""
        self._asked.add(key)
        return key in self._values

    def raw(self, key: str) -> Any:
        """The value as the parser returned it; None if absent."""
        self._asked.add(key)
        return self._values.get(key)

    def names(self) -> list[str]:
        """The keys of a free-form map, all of them then counted as asked for."""
        found = []
        for key in self._values:
            if isinstance(key, str):
                found.append(key)
            else:
                self._flaw(self._at(str(key)), "the key must be text; put it in quotes")
        self._asked.update(found)
        return found

    def ignore(self, *keys: str) -> None:
        """Accepts fields that are legal and mean nothing here."""
        self._asked.update(keys)

    def close(self) -> None:
        """Reports unknown keys, with the nearest known one as a suggestion."""
        for key in self._values:
            if key not in self._asked:
                few = len(self._flaws) < _EXPLAINED and len(str(key)) <= _EXPLAINED_LENGTH
                near = get_close_matches(str(key), self._asked, n=1) if few else []
                hint = f"did you mean {near[0]}?" if near else f"known: {_listed(self._asked)}"
                self._flaw(self._at(str(key)), f"unknown field; {hint}")

    def map(self, key: str, *, required: bool = False) -> Self:
        return type(self)(self._take(key, required), self.document, self._flaws, self._at(key))

    def within(self, key: str, value: Any) -> Self:
        """A map that stands in the text of a field, such as JSON in an annotation."""
        return type(self)(value, self.document, self._flaws, self._at(key))

    def maps(self, key: str, *, required: bool = False) -> list[Self]:
        return [
            type(self)(
                {} if item is None else item, self.document, self._flaws, f"{self._at(key)}[{i}]"
            )
            for i, item in enumerate(self._list(key, required))
        ]

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        found = []
        for i, item in enumerate(self._list(key, required)):
            if isinstance(item, str):
                found.append(item)
            else:
                self._flaw(f"{self._at(key)}[{i}]", f"must be text, not {_described(item)}")
        return tuple(found)

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        value = self._take(key, required)
        if value is None or isinstance(value, str):
            return default if value is None else value
        self.wrong(key, f"must be text, not {_described(value)}; put it in quotes")
        return default

    def name(self, key: str, default: str = "", *, required: bool = False) -> str:
        """A Kubernetes object name: lower case letters, digits, `-` and `.`."""
        value = self.text(key, default, required=required)
        if value and _NAME.fullmatch(value) is None:
            self.wrong(key, f"{value!r} is not a name; use lower case letters, digits and '-'")
        return value

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._take(key, required=False)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(key, f"must be true or false, not {_described(value)}")
        return default

    def integer(
        self,
        key: str,
        default: int = 0,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
        required: bool = False,
    ) -> int:
        value = self._take(key, required)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.wrong(key, f"must be a whole number, not {_described(value)}")
        elif minimum is not None and value < minimum:
            self.wrong(key, f"{value} is too small; the least is {minimum}")
        elif maximum is not None and value > maximum:
            self.wrong(key, f"{value} is too large; the most is {maximum}")
        else:
            return value
        return default

    def priority(self, key: str, *, required: bool = False) -> int:
        """An int32, Kubernetes' range of priorities."""
        value = self.integer(key, required=required)
        if not -(2**31) <= value < 2**31:
            self.wrong(key, f"{value} does not fit 32 bits")
        return value

    def choice(self, key: str, kind: type[_Choice], default: _Choice) -> _Choice:
        value = self._take(key, required=False)
        if value is None:
            return default
        for member in kind:
            if member.value == value:
                return member
        self.wrong(key, f"{value!r} is not one of {_listed(kind)}")
        return default

    def quantity(self, key: str, resource: str, *, signed: bool = False) -> int | None:
        """An amount in the resource's base unit; None if the field is absent."""
        value = self._take(key, required=False)
        if value is None:
            return None
        try:
            amount = parse_quantity(resource, _number_or_text(value))
        except ValueError as error:
            self.wrong(key, str(error))
            return 0
        if amount < 0 and not signed:
            self.wrong(key, f"{value!r} is negative; the least is 0")
            return 0
        if abs(amount) > MAX_AMOUNT:
            self.wrong(key, f"{value!r} is more than any cluster has; write less")
            return 0
        return amount

    def amounts(self, key: str, *, required: bool = False, signed: bool = False) -> dict[str, int]:
        """A map of resource to quantity, as in a pod's requests."""
        inner = self.map(key, required=required)
        return {
            resource: inner.quantity(resource, resource, signed=signed) or 0
            for resource in inner.names()
        }

    def milli(self, key: str, default: int) -> int:
        """A non-negative decimal times 1000, as in a fair-sharing weight."""
        value = self._take(key, required=False)
        if value is None:
            return default
        try:
            amount = parse_decimal(_number_or_text(value)) * 1000
        except ValueError as error:
            self.wrong(key, str(error))
            return default
        if amount < 0 or amount.denominator != 1:
            self.wrong(key, f"{value!r} must be at least 0, with at most three decimals")
            return default
        return amount.numerator

    def weight_milli(self, key: str, default: float) -> float:
        """A fair-sharing weight times 1000: 0, or more than 0.000000001."""
        value = self._take(key, required=False)
        if value is None:
            return default
        try:
            weight = parse_decimal(_number_or_text(value))
        except ValueError as error:
            self.wrong(key, str(error))
            return default
        if weight < 0 or 0 < weight <= _LEAST_WEIGHT or weight > MAX_AMOUNT:
            self.wrong(key, f"{value!r} must be at least 0, and if not 0 above 0.000000001")
            return default
        milli = 1000 * weight
        return milli.numerator if milli.denominator == 1 else float(milli)

    def duration(
        self, key: str, default: int | None = None, *, required: bool = False
    ) -> int | None:
        """Milliseconds of a Go duration; the default if the field is absent."""
        value = self._take(key, required)
        if value is None:
            return default
        try:
            return parse_duration(value if isinstance(value, str) else str(value))
        except ValueError as error:
            self.wrong(key, str(error))
            return default

    def instant(self, key: str, default: int = 0, *, required: bool = False) -> int:
        """Milliseconds since the epoch of an ISO 8601 time with a zone."""
        value = self._take(key, required)
        if value is None:
            return default
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.wrong(key, f"{value!r} is not a time; write for example 2026-01-01T00:00:00Z")
            return default
        return _epoch_milliseconds(moment)

    def string_map(self, key: str) -> dict[str, str]:
        inner = self.map(key)
        return {name: inner.text(name) for name in inner.names()}

    def _take(self, key: str, required: bool) -> Any:
        self._asked.add(key)
        value = self._values.get(key)
        if value is None and required:
            self.wrong(key, "is missing")
        return value

    def _list(self, key: str, required: bool) -> list[Any]:
        value = self._take(key, required)
        if required and value == []:
            self.wrong(key, "must not be empty")
        if value is None or isinstance(value, list):
            return value or []
        self.wrong(key, f"must be a list, not {_described(value)}")
        return []

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _flaw(self, path: str, message: str) -> None:
        self._flaws.append(Flaw(self.document, path, message))


def _epoch_milliseconds(moment: datetime) -> int:
    since = moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _number_or_text(value: Any) -> str | float:
    """What a quantity may be written as; a flag is a number to Python, but not to Kubernetes."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a quantity, not {_described(value)}")  # noqa: TRY004, one answer
    return value


def _described(value: Any) -> str:
    """A value as people know it from YAML."""
    match value:
        case Mapping():
            return "a map"
        case list():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
    return repr(value)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(str(name) for name in names)) or "none"
