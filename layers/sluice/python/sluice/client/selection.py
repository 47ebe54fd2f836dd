"""Selects workloads: by id, unique prefix, unique name, or filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sluice.client.errors import (
    AmbiguousNameError,
    ObjectNotFoundError,
    UsageError,
)
from sluice.client.watching import ENDED

if TYPE_CHECKING:
    from sluice.client.api import ApiClient

Json = dict[str, Any]

MANY = 10_000
SHOWN_IDS = 5


def find(
    api: ApiClient, reference: str, *, missing: type[ObjectNotFoundError] = ObjectNotFoundError
) -> Json:
    """The workload with this id, unique prefix of an id, or unique name.

    Raises `missing` if there is none, AmbiguousNameError if there are several.
    """
    try:
        return api.workload(reference)
    except ObjectNotFoundError as error:
        if (found := _only(api, reference)) is not None:
            return found
        if isinstance(error, AmbiguousNameError):
            raise
        raise missing(error.message, hint=error.hint) from error


def find_by_name(
    api: ApiClient, name: str, *, missing: type[ObjectNotFoundError] = ObjectNotFoundError
) -> Json:
    """The workload with this name. If several have it, exactly one must be unfinished.

    Raises `missing` if there is none, AmbiguousNameError if there are several.
    """
    if (found := _only(api, name)) is not None:
        return found
    raise missing(f"no workload is named {name!r}", hint="`sluice ls` lists them")


def _only(api: ApiClient, name: str) -> Json | None:
    """The workload with this name, or None. Raises AmbiguousNameError for several."""
    named = list(api.workloads(limit=MANY, name=name))
    several = [workload for workload in named if workload["phase"] not in ENDED] or named
    if len(several) > 1:
        ids = ", ".join(workload["id"] for workload in several[:SHOWN_IDS])
        raise AmbiguousNameError(
            f"{len(several)} workloads are named {name!r}", hint=f"take an id: {ids}"
        )
    return api.workload(several[0]["id"]) if several else None


def find_many(api: ApiClient, references: Sequence[str], **filters: str) -> list[Json]:
    """The workloads selected by ids and names or by filters, each once.

    Raises UsageError unless exactly one of both is given.
    """
    chosen = {name: value for name, value in filters.items() if value}
    if bool(references) == bool(chosen):
        raise UsageError("name workloads: ids or names, or a selection (-n, -q, -l, -s)")
    found: Iterator[Json] | list[Json]
    if references:
        found = [find(api, reference) for reference in references]
    else:
        found = api.workloads(limit=MANY, **chosen)
    return list({workload["id"]: workload for workload in found}.values())
