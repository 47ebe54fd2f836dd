"""A mistake in a document in one line, the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping


def mistake(error: Mapping[str, str]) -> str:
    """`{field, message}` as `spec.image: …`; one of the whole document has no field."""
    return ": ".join(filter(None, (error.get("field", ""), error.get("message", ""))))
