"""Records for tests, written as plain values: the codec makes them what the code reads."""

from collections.abc import Mapping
from typing import Any, get_type_hints

from sluice.core.lifecycle.options import Options
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.run import Run
from sluice.core.values.plain import from_plain


def options_of(written: Mapping[str, Any]) -> Options:
    """`options_of({"checkpoint": {"mode": "kubelet"}})`."""
    return from_plain(Options, dict(written))


HINTS = get_type_hints(Workload)
_TYPED = ("options", "machine")


def typed(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a workload, of which those that are plain values become what they stand for."""
    plain = {name for name in _TYPED if isinstance(fields.get(name), dict)}
    read = {name: from_plain(HINTS[name], fields[name]) for name in plain}
    if "runs" in fields:
        read["runs"] = tuple(
            from_plain(Run, run) if isinstance(run, dict) else run for run in fields["runs"]
        )
    return fields | read
