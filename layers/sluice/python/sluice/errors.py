"""The errors of Sluice, one small tree.

SluiceError
├── ClusterError            a cluster did not do what it was asked; try again later
│   └── ClusterForbidden    … because RBAC or the token refuses it; names verb and resource
├── CheckpointServiceError  a driver's service did not answer, or left open what it did
│   └── CheckpointServiceRefused … it answered that it will not do it
├── ManifestUnavailable     a referenced manifest cannot be read or has another digest
├── ManifestMissing         a manifest is not in its table
├── KeptConflicting         a pass lost every race; a fresh kick takes the place of its own
└── NotConfigured           a setting or catalog object is missing
"""

from __future__ import annotations


class SluiceError(Exception):
    """Every error of ours."""


class ClusterError(SluiceError):
    """A cluster did not do what it was asked; trying again later may help."""

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ClusterForbidden(ClusterError):
    """The cluster refuses us: the message names the verb and resource that RBAC lacks."""


class CheckpointServiceError(SluiceError):
    """Whether the service did what it was asked is not known."""


class CheckpointServiceRefused(CheckpointServiceError):
    """The service did nothing, and for a `lasting` reason will not do it later either."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class ManifestUnavailable(SluiceError):
    """A referenced manifest cannot be read, or its digest differs."""


class KeptConflicting(SluiceError):
    """An admission pass lost every race; another kick has to follow."""


class NotConfigured(SluiceError):
    """A setting or an applied object that this needs is missing."""


class ManifestMissing(SluiceError):
    """A workload's manifest is not in its table: deleted by hand, or stored by a newer version."""
