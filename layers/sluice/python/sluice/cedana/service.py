"""Cedana's service as the reconciler and the catalog see it."""

from __future__ import annotations

from typing import Protocol

from sluice.cedana.pods import CedanaAction


class CedanaApi(Protocol):
    """Cedana's service of one cluster. Every method may raise CheckpointServiceError.

    An error leaves open whether an action was begun, unless it is a CheckpointServiceRefused.
    """

    def newest(self, pod_uid: str) -> str:
        """The newest action about a pod; empty if there is none."""
        ...

    def checkpoint(self, pod_uid: str) -> str:
        """Begin to save a running pod, which keeps running; the action."""
        ...

    def restore(self, checkpoint: str) -> str:
        """Begin to restore what the action `checkpoint` has saved, as a new pod; the action."""
        ...

    def look(self, action: str) -> CedanaAction: ...

    def retire(self, checkpoint: str) -> None:
        """What an action has saved is not needed any more; what is gone counts as retired."""
        ...


class CedanaApis(Protocol):
    def of(self, cluster: str) -> CedanaApi:
        """Raises NotConfigured for a cluster without Cedana."""
        ...
