"""Write down what keeps a function from its work, where `sluice doctor` and `why` find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sluice.core.lifecycle.faults import Fault
from sluice.core.values.reasons import Reason
from sluice.errors import ClusterError, ClusterForbidden
from sluice.ports import Clock, Faults

MESSAGE_LENGTH = 1_000


@dataclass(frozen=True, kw_only=True)
class NoteFaults:
    """`refusal` tells AWS's refusals from other errors, and what they say."""

    faults: Faults
    clock: Clock
    refusal: Callable[[BaseException], str | None]

    @contextmanager
    def __call__(self, function: str, subject: str = "") -> Iterator[None]:
        """Notes a fault that leaves the block as an exception, and lets it go on."""
        try:
            yield
        except Exception as error:
            self.note(function, subject, error)
            raise

    def note(self, function: str, subject: str, error: BaseException) -> None:
        """Does nothing for errors that go away by themselves: those come back in a moment."""
        if isinstance(error, ClusterForbidden):
            code, message = Reason.MISSING_RIGHT, str(error)
        elif isinstance(error, ClusterError) and not error.status:
            code, message = Reason.CLUSTER_UNREACHABLE, str(error)
        elif refused := self.refusal(error):
            code, message = Reason.MISSING_RIGHT, refused
        else:
            return
        fault = Fault(function, subject, code, message[:MESSAGE_LENGTH], self.clock.now())
        with suppress(Exception):  # the right to write it may be the one that is missing
            self.faults.note(fault)
