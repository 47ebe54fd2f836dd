"""Records for tests, written as plain values: the codec makes them what the code reads."""

from collections.abc import Mapping
from typing import Any, get_type_hints

from sluice.core.lifecycle.options import Options
from sluice.core.lifecycle.record import Workload
from sluice.core.values.plain import from_plain


def options_of(written: Mapping[str, Any]) -> Options:
    """`options_of({"checkpoint": {"mode": "kubelet"}})`."""
    return from_plain(Options, dict(written))


HINTS = get_type_hints(Workload)
_TYPED = ("options",)


def typed(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a workload, of which those that are plain values become what they stand for."""
    return {
        name: from_plain(HINTS[name], value)
        if name in _TYPED and isinstance(value, dict)
        else value
        for name, value in fields.items()
    }
