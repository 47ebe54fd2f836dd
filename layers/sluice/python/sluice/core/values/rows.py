"""Stored rows: what of them this version of the code knows."""

from collections.abc import Mapping
from typing import Any


def known(kind: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's values for a dataclass with slots; what a later version has added is left aside."""
    return {name: row[name] for name in kind.__slots__ if name in row}
