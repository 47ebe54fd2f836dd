"""The codec: frozen dataclasses to plain JSON values and back, driven by their own type hints.

What a kind of value needs is worked out once and kept (docs/decisions/0030-typed-records.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]

_SCALARS = frozenset({str, int, float, bool, NoneType})


class _Misfit(ValueError):
    """A value that does not fit, and where in the whole document it stands."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}")
        self.message, self.path = message, path

    def within(self, step: str) -> _Misfit:
        return _Misfit(self.message, f"{step}{self.path}")


def to_plain(value: Any) -> Any:
    """JSON values of a dataclass; fields that hold their default are left out."""
    kind = type(value)
    if kind in _SCALARS:  # most of all values: asked first, it halves the time
        return value
    if kind is dict or isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if kind is tuple or kind is list:
        return [to_plain(item) for item in value]
    if is_dataclass(kind):
        return {
            name: to_plain(inner)
            for name, default in _defaults(kind)
            if (inner := getattr(value, name)) != default
        }
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    return value


def from_plain(kind: type[_T], value: Any, path: str = "") -> _T:
    """The dataclass that `to_plain` made the value of.

    Raises ValueError that names the path of the first value that does not fit.
    """
    try:
        read: _T = _reader(cast("Any", kind), strict=True)(value)
    except _Misfit as misfit:
        raise misfit.within(path) from None
    return read


def from_stored(kind: type[_T], value: Any) -> _T:
    """The dataclass of a stored value: fields that a later version has added are left aside.

    Scalars are taken as they are stored. Raises ValueError where a field is missing.
    """
    read: _T = _reader(cast("Any", kind), strict=False)(value)
    return read


def canonical(value: Any) -> str:
    """The one JSON text of a plain value: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """`sha256:` and the hash of the canonical text of a plain value."""
    return digest_of_text(canonical(value))


def digest_of_text(text: str) -> str:
    """`sha256:` and the hash of a canonical text."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Names of a dataclass's fields with what they hold by default."""
    return tuple((field.name, _default(field)) for field in fields(kind))


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


@cache
def _readers(kind: type, *, strict: bool) -> dict[str, _Reader]:
    # The core imports these for annotations only.
    hints = get_type_hints(kind, localns={"Mapping": Mapping, "Sequence": Sequence})
    return {field.name: _reader(hints[field.name], strict=strict) for field in fields(kind)}


@cache
def _reader(kind: Any, *, strict: bool) -> _Reader:
    """The function that reads values of one type."""
    origin: Any = get_origin(kind)
    arguments = get_args(kind)
    if origin in {Union, UnionType}:  # the model has only `X | None`
        wanted = next(one for one in arguments if one is not NoneType)
        return partial(_optional, _reader(wanted, strict=strict))
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(_dataclass, kind, _readers(kind, strict=strict), strict)
    if kind is Any:
        return _as_it_is
    if origin in {tuple, Sequence, frozenset}:
        whole = frozenset if origin is frozenset else tuple
        return partial(_items, whole, _reader(arguments[0], strict=strict))
    if origin is Mapping:
        return partial(_mapping, _reader(arguments[1], strict=strict))
    if issubclass(kind, StrEnum):
        return partial(_word, kind)
    return partial(_expect, (int, float) if kind is float else kind) if strict else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _optional(read: _Reader, value: Any) -> Any:
    return None if value is None else read(value)


def _dataclass(kind: type, readers: Mapping[str, _Reader], strict: bool, value: Any) -> Any:
    found = {}
    for name, inner in _expect((dict, Mapping), value).items():
        if (read := readers.get(name)) is None:
            if strict:
                raise _Misfit(f"unknown field of {kind.__name__}", f".{name}")
            continue
        try:
            found[name] = inner if read is _as_it_is else read(inner)
        except _Misfit as misfit:
            raise misfit.within(f".{name}") from None
    try:
        return kind(**found)
    except TypeError as error:
        raise _Misfit(str(error)) from error


def _items(whole: type, read: _Reader, value: Any) -> Any:
    found = []
    for place, inner in enumerate(_expect((list, tuple), value)):
        try:
            found.append(read(inner))
        except _Misfit as misfit:
            raise misfit.within(f"[{place}]") from None
    return whole(found)


def _mapping(read: _Reader, value: Any) -> Any:
    found = {}
    for key, inner in _expect((dict, Mapping), value).items():
        try:
            found[key] = read(inner)
        except _Misfit as misfit:
            raise misfit.within(f".{key}") from None
    return found


def _word(kind: type[StrEnum], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise _Misfit(f"{value!r} is no {kind.__name__}") from None


def _expect(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _Misfit(f"{value!r} does not fit")
    return value
