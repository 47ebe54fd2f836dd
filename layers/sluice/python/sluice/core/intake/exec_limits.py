"""What Linux lets a container start with: bounds of execve on arguments and environment.

Beyond them the pod fails on its node with `Argument list too long`, again and again. References
`$(NAME)` count with what they stand for, since a few lines of them can stand for gigabytes.
Source: execve(2), MAX_ARG_STRLEN and a quarter of the usual stack of 8 MiB; Kubernetes, "Define
dependent environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

MAX_STRING: Final = 128 * 1024 - 1
"""Bytes of one argument, or of NAME=VALUE; the end of the string takes one more."""
MAX_TOTAL: Final = 2 * 1024 * 1024 - 64 * 1024
"""Bytes of all of them with their pointers; the rest is for what Sluice and Kubernetes add."""
_POINTER: Final = 9
_REFERENCE: Final = re.compile(r"\$\$|\$\(([^)]{1,256})\)")


def beyond_limits(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a well-shaped container with which nothing could be started, and why."""
    known: dict[str, int] = {}
    total = 0
    for place, variable in enumerate(container.get("env") or []):
        name = str(variable.get("name") or "")
        known[name] = _size(str(variable.get("value") or ""), known)
        size = len(name.encode()) + 1 + known[name]
        total += size + _POINTER
        if size > MAX_STRING:
            yield f"env[{place}].value", _too_long(size)
    for field in ("command", "args"):
        texts: Sequence[Any] = container.get(field) or []
        for place, text in enumerate(texts):
            size = _size(str(text), known)
            total += size + _POINTER
            if size > MAX_STRING:
                yield f"{field}[{place}]", _too_long(size)
    if total > MAX_TOTAL:
        advice = "put the data into a file or a volume"
        yield "env", f"{total} bytes of variables and arguments are more than {MAX_TOTAL}; {advice}"


def _size(text: str, known: Mapping[str, int]) -> int:
    """Bytes of a text once its references are replaced; those to nothing known stay as they are."""
    size = len(text.encode("utf-8", "surrogatepass"))
    for reference in _REFERENCE.finditer(text):
        name = reference[1]
        if name in known:
            size += known[name] - len(reference[0].encode())
    return size


def _too_long(size: int) -> str:
    return (
        f"{size} bytes are more than the {MAX_STRING} that Linux allows one argument or variable;"
        " put the data into a file or a volume"
    )
