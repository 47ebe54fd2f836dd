"""Cedana saves and restores single pods through its own service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sluice.cedana.settings import CedanaServiceSettings, read_settings
from sluice.core.checkpoints.driver import (
    CheckpointDriver,
    CheckpointMode,
    DriverRefusal,
    JobShape,
    RestoreNeeds,
)
from sluice.core.config.document import Fields

MODE: Final = CheckpointMode.CEDANA
SCHEME: Final = "cedana://"
RUNTIME_CLASS: Final = "cedana"
"""What the vendor's chart wants of pods with GPUs."""
GPUS: Final = "nvidia.com/gpu"
_ADVICE: Final = "use kubelet or application"


class CedanaCheckpoints(CheckpointDriver):
    mode = MODE
    hears_signal = False
    service = "cedana"
    scheme = SCHEME
    domains = ("cedana.ai",)
    variables = ("CEDANA_",)

    def refuse(self, job: JobShape) -> DriverRefusal | None:
        """The Job controller has to adopt the single pod that Cedana restores."""
        if not job.adopts_pods:
            return DriverRefusal("kind", f"checkpoint.mode cedana is for Jobs only; {_ADVICE}")
        if job.pods > 1:
            why = f"checkpoint.mode cedana is for Jobs of one pod, not {job.pods}; {_ADVICE}"
            return DriverRefusal("spec.parallelism", why)
        if job.indexed:
            why = f"checkpoint.mode cedana is not for Indexed Jobs; {_ADVICE}"
            return DriverRefusal("spec.completionMode", why)
        return None

    def restore_needs(self, source: str) -> RestoreNeeds:
        kept = source.startswith(SCHEME)
        return RestoreNeeds(gated=kept, stand_in=kept, annotated=bool(source) and not kept)

    def runtime_class(self, pod: Mapping[str, Any]) -> str:
        """Cedana saves a pod with GPUs only below its own container runtime."""
        asks = any(
            GPUS in (container.get("resources") or {}).get(kind, {})
            for container in pod["containers"]
            for kind in ("requests", "limits")
        )
        return RUNTIME_CLASS if asks else ""

    def read_service(self, fields: Fields) -> CedanaServiceSettings:
        return read_settings(fields)

    @property
    def without_service(self) -> str:
        return (
            "no Cluster has Cedana configured: use kubelet or application, or ask an administrator"
            " for spec.cedana {url, clusterId, tokenSecret} of a Cluster"
        )
