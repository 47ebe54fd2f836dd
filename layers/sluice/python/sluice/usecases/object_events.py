"""Events on an object that somebody else made: there its owner looks for what Sluice does."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from sluice.errors import ClusterError
from sluice.ports import Cluster, Document

NORMAL, WARNING = "Normal", "Warning"
_LONGEST = 1024  # characters of a message that the API server takes
_COMPONENT = "sluice"


def tell(
    cluster: Cluster, job: Document, reason: str, message: str, *, kind: str = NORMAL, now: int
) -> None:
    """Writes an event, and the same one only once; that it cannot be written disturbs nobody."""
    metadata = job["metadata"]
    text = message[:_LONGEST]
    version = f"{metadata.get('generation', '')}{reason}{text}"
    name = f"{metadata['name'][:200]}.{sha256(version.encode()).hexdigest()[:16]}"
    at = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event: Document = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": text,
        "type": kind,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": _COMPONENT},
    }
    try:
        cluster.create(event)
    except ClusterError:
        return  # a right that an older manifest did not give, or a namespace that goes
