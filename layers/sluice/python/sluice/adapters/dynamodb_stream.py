"""Records of the stream of the Workloads table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.adapters.workload_items import workload_of
from sluice.ports import StreamRecord


def stream_record(change: Mapping[str, Any]) -> StreamRecord:
    """Reads the `dynamodb` part of a stream record that has a new image.

    Raises KeyError, TypeError or ValueError for an image that this code does not understand.
    """
    before = workload_of(change["OldImage"]) if change.get("OldImage") else None
    after = workload_of(change["NewImage"])
    # The stream has whole seconds, cut off; the workload itself often knows the time better.
    at = int(float(change.get("ApproximateCreationDateTime", 0)) * 1000)
    known = (after.admitted_at, after.dispatched_at, after.started_at, after.finished_at)
    ended = after.runs[-1].ended_at if after.runs else 0
    return StreamRecord(before, after, max(at, ended, *known))
