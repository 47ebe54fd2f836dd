"""Skeleton of the quota tree's public names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in the configuration: which object, which field, and what to do."""

    kind: str
    name: str
    field: str
    message: str
