"""Frozen dataclasses to plain JSON values and back, driven by their own type hints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


_SCALARS = frozenset({str, int, float, bool, NoneType})


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
    read: _T = _read(kind, value, path)
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
def _hints(kind: type) -> dict[str, Any]:
    # The core imports these for annotations only.
    return get_type_hints(kind, localns={"Mapping": Mapping, "Sequence": Sequence})


def _read(kind: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:  # the model has only `X | None`
        wanted = next(one for one in arguments if one is not NoneType)
        return None if value is None else _read(wanted, value, path)
    if is_dataclass(kind):
        return _read_dataclass(kind, _expect(dict, value, path), path)
    if kind is Any:
        return value
    if origin in {tuple, Sequence, frozenset}:
        items = enumerate(_expect(list, value, path))
        read = (_read(arguments[0], one, f"{path}[{i}]") for i, one in items)
        return frozenset(read) if origin is frozenset else tuple(read)
    if origin is Mapping:
        pairs = _expect(dict, value, path).items()
        return {key: _read(arguments[1], one, f"{path}.{key}") for key, one in pairs}
    return _read_scalar(kind, value, path)


def _read_scalar(kind: Any, value: Any, path: str) -> Any:
    if not issubclass(kind, StrEnum):
        return _expect((int, float) if kind is float else kind, value, path)
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(f"{path}: {value!r} is no {kind.__name__}") from error


def _read_dataclass(kind: Any, value: dict[str, Any], path: str) -> Any:
    hints = _hints(kind)
    if unknown := sorted(value.keys() - hints.keys()):
        raise ValueError(f"{path}.{unknown[0]}: unknown field of {kind.__name__}")
    try:
        return kind(
            **{name: _read(hints[name], one, f"{path}.{name}") for name, one in value.items()}
        )
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def _expect(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{path}: {value!r} does not fit")
    return value
