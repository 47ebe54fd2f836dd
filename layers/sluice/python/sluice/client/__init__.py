"""The Python client: submit workloads, wait for them, read their logs.

    from sluice.client import Client

    client = Client()
    submitted = client.submit("job.yaml")
    client.wait(submitted.id).require_success()

It finds the deployment and the credentials as the `sluice` command does, raises the same
exceptions, and they carry the same exit codes. `AsyncClient` has the same methods as coroutines.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice.client.asynchronous import AsyncClient
    from sluice.client.client import Client
    from sluice.client.connection import Connection
    from sluice.client.errors import (
        AmbiguousNameError,
        ControlPlaneUnavailableError,
        IdempotencyKeyReusedError,
        NotDeployedError,
        ObjectNotFoundError,
        PermissionDeniedError,
        RequestRefusedError,
        SluiceClientError,
        UsageError,
        WorkloadNotFoundError,
        WorkloadOutcomeError,
    )
    from sluice.client.exit_codes import ExitCode
    from sluice.client.results import (
        LogText,
        SubmittedWorkload,
        TimelineEntry,
        WaitingReason,
        WhyAnswer,
        WorkloadStatus,
    )

_PLACES = {
    "AsyncClient": "asynchronous",
    "Client": "client",
    "Connection": "connection",
    "ExitCode": "exit_codes",
    **dict.fromkeys(
        (
            "AmbiguousNameError",
            "ControlPlaneUnavailableError",
            "IdempotencyKeyReusedError",
            "NotDeployedError",
            "ObjectNotFoundError",
            "PermissionDeniedError",
            "RequestRefusedError",
            "SluiceClientError",
            "UsageError",
            "WorkloadNotFoundError",
            "WorkloadOutcomeError",
        ),
        "errors",
    ),
    **dict.fromkeys(
        (
            "LogText",
            "SubmittedWorkload",
            "TimelineEntry",
            "WaitingReason",
            "WhyAnswer",
            "WorkloadStatus",
        ),
        "results",
    ),
}

__all__ = [  # noqa: RUF022 - in the order of use
    "Client",
    "AsyncClient",
    "Connection",
    "SubmittedWorkload",
    "WorkloadStatus",
    "WaitingReason",
    "WhyAnswer",
    "TimelineEntry",
    "LogText",
    "ExitCode",
    "SluiceClientError",
    "NotDeployedError",
    "UsageError",
    "ObjectNotFoundError",
    "AmbiguousNameError",
    "WorkloadNotFoundError",
    "PermissionDeniedError",
    "RequestRefusedError",
    "IdempotencyKeyReusedError",
    "ControlPlaneUnavailableError",
    "WorkloadOutcomeError",
]


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used, so that `import sluice.client` is quick."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
