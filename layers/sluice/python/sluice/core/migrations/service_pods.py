"""Pods that a checkpoint driver's service saves and restores, and no agent on their node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.lifecycle import job_status
from sluice.core.migrations.pod_annotations import DRIVER, ORDER, annotations_of, ordered_result

Document = Mapping[str, Any]


def needs_reconciling(pod: Document) -> bool:
    """Whether the driver's reconciler has to look at it: an open order, or a restored pod."""
    if pod["metadata"].get("deletionTimestamp") or not job_status.running_pod(pod):
        return False
    return awaits_service(pod) or job_status.bare(pod)


def awaits_service(pod: Document) -> bool:
    """Whether it runs and bears an order for a service that nobody has answered."""
    annotations = annotations_of(pod)
    running = (pod.get("status") or {}).get("phase") == "Running"
    served = any(d.service and annotations.get(DRIVER) == d.mode for d in DRIVERS.values())
    return running and served and bool(annotations.get(ORDER)) and ordered_result(pod) is None
