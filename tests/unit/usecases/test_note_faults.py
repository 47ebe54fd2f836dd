"""What a person has to mend is noted under its function; what passes by itself is not."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from sluice.adapters.aws_refusals import refusal
from sluice.core.lifecycle.faults import Fault
from sluice.errors import ClusterError, ClusterForbidden
from sluice.usecases.upkeep.note_faults import NoteFaults

from tests.fakes import FakeClock, MemoryFaults

DENIED = "User: arn:aws:sts::1:assumed-role/admit/x is not authorized to perform: dynamodb:PutItem"


def from_aws(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "PutItem")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            ClusterForbidden('cannot list resource "pods"', 403),
            "MISCONFIGURATION:MissingRight",
            'cannot list resource "pods"',
        ),
        (
            from_aws("AccessDeniedException", DENIED),
            "MISCONFIGURATION:MissingRight",
            f"PutItem: {DENIED}",
        ),
        (
            ClusterError("https://eks does not answer"),
            "PLATFORM:ClusterUnreachable",
            "https://eks does not answer",
        ),
    ],
)
def test_it_is_noted_and_goes_on(error: Exception, code: str, message: str) -> None:
    faults, clock = MemoryFaults(), FakeClock()

    with (
        pytest.raises(type(error)),
        NoteFaults(faults=faults, clock=clock, refusal=refusal)("admit", "root"),
    ):
        raise error

    assert faults.noted() == [Fault("admit", "root", code, message, clock.now())]


@pytest.mark.parametrize(
    "error",
    [
        ClusterError("slow down", 429),
        from_aws("ProvisionedThroughputExceededException", "slow down"),
        ValueError("x"),
    ],
    ids=str,
)
def test_trouble_that_passes_is_not_noted(error: Exception) -> None:
    faults = MemoryFaults()

    with (
        pytest.raises(type(error)),
        NoteFaults(faults=faults, clock=FakeClock(), refusal=refusal)("act"),
    ):
        raise error

    assert faults.noted() == []


def test_a_note_that_cannot_be_written_does_not_hide_the_fault() -> None:
    class Denied(MemoryFaults):
        def note(self, fault: Fault) -> None:
            raise from_aws("AccessDeniedException", fault.message)

    noting = NoteFaults(faults=Denied(), clock=FakeClock(), refusal=refusal)

    with pytest.raises(ClusterForbidden), noting("act", "batch-1"):
        raise ClusterForbidden("cannot", 403)


@pytest.mark.parametrize(
    ("code", "recent_ms"),
    [("MISCONFIGURATION:MissingRight", 900_000), ("PLATFORM:ClusterUnreachable", 150_000)],
)
def test_a_silent_cluster_is_forgotten_sooner_than_a_missing_right(
    code: str, recent_ms: int
) -> None:
    fault = Fault("observe", "batch-1", code, "x", at=1_000)

    assert fault.recent(1_000 + recent_ms - 1)
    assert not fault.recent(1_000 + recent_ms)
