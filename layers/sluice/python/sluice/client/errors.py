"""The exceptions of the client, as one small tree; each class has the exit code of the command.

SluiceClientError
├── NotDeployedError             the stacks do not publish a name
├── UsageError                   the arguments make no valid request
├── ObjectNotFoundError          no object has this id or name
│   ├── AmbiguousNameError       several objects have it
│   └── WorkloadNotFoundError    the workload does not exist
├── PermissionDeniedError        no credentials, or not these rights
├── RequestRefusedError          validation or policy refuses the request
├── IdempotencyKeyReusedError    the key belongs to another document
├── ControlPlaneUnavailableError the control plane does not answer; retry
└── WorkloadOutcomeError         a workload ended otherwise than SUCCEEDED, or not in time

Every exception says what is wrong (message), where (errors), and what to do (hint).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice.client.exit_codes import ExitCode
from sluice.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SluiceClientError(SluiceError):
    """Base of all exceptions of the client.

    `errors` holds one mapping with `field` and `message` for each mistake in a document.
    """

    exit_code: ExitCode = ExitCode.ERROR

    def __init__(
        self, message: str, *, hint: str = "", errors: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.errors = tuple(errors)


class NotDeployedError(SluiceClientError):
    """The stacks do not publish this name: they are not deployed, or a setting omits the part."""


class UsageError(SluiceClientError):
    """The arguments make no valid request."""

    exit_code = ExitCode.USAGE


class ObjectNotFoundError(SluiceClientError):
    """No object has this id or name."""

    exit_code = ExitCode.NOT_FOUND


class AmbiguousNameError(ObjectNotFoundError):
    """Several objects have this name or prefix."""


class WorkloadNotFoundError(ObjectNotFoundError):
    """The workload does not exist."""

    exit_code = ExitCode.WORKLOAD_NOT_FOUND


class PermissionDeniedError(SluiceClientError):
    """No credentials, or they do not allow this."""

    exit_code = ExitCode.DENIED


class RequestRefusedError(SluiceClientError):
    """Validation or policy refuses the request; a retry is refused too."""

    exit_code = ExitCode.REFUSED


class IdempotencyKeyReusedError(SluiceClientError):
    """The idempotency key belongs to another document."""

    exit_code = ExitCode.KEY_REUSED


class ControlPlaneUnavailableError(SluiceClientError):
    """The control plane does not answer; retry."""

    exit_code = ExitCode.UNAVAILABLE


class WorkloadOutcomeError(SluiceClientError):
    """A workload ended otherwise than SUCCEEDED, or has not ended in time.

    `exit_code` tells which: 100 failed, 101 not finished, 103 cancelled, 104 rejected, 105
    recovery budget exhausted.
    """

    def __init__(
        self, message: str, *, exit_code: ExitCode, errors: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message, errors=errors)
        self.exit_code = exit_code
