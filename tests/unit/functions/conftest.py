"""What Lambda gives to every function: a little environment and a context."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from sluice import bootstrap
from sluice.adapters.aws_refusals import refusal
from sluice.usecases.upkeep.note_faults import NoteFaults

from tests.fakes import FakeClock, MemoryFaults

# Read when a handler's module is imported, so they stand before that.
os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "sluice")
os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "Sluice")
os.environ.setdefault("SLUICE_INTERRUPTIONS_QUEUE", "control-QueuesInterruptions3B99-1")
os.environ.setdefault("SLUICE_EVENTS_QUEUE", "events-control-QueuesEvents3B99-1")


@dataclass(frozen=True)
class Context:
    function_name: str = "sluice"
    memory_limit_in_mb: int = 256
    aws_request_id: str = "11111111-2222-3333-4444-555555555555"
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:sluice"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> MemoryFaults:
    """Where every handler notes what it lacks."""
    faults = MemoryFaults()
    noting = NoteFaults(faults=faults, clock=FakeClock(), refusal=refusal)
    monkeypatch.setattr(bootstrap, "noting", lambda: noting)
    return faults


@pytest.fixture
def context() -> Context:
    return Context()
