"""Every reader of what tenants, agents and strangers send, and what it owes each document.

A reader gets a text beside a good neighbour. It fails (raises) where the text does more than spoil
its own answer: a neighbour not judged, a message that comes again for ever, a status of 500, a
record that DynamoDB could not hold, or more time than BUDGET_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from sluice import bootstrap
from sluice.adapters.aws_refusals import refusal
from sluice.usecases.upkeep.note_faults import NoteFaults

from tests.fakes import FakeClock, MemoryFaults
from tests.hostile.desk import BUDGET_SECONDS, Text
from tests.hostile.readers_of_nodes import (
    agent_answers,
    changes,
    notices,
    read_annotation,
    read_change,
    read_notice,
)
from tests.hostile.readers_of_tenants import (
    answers,
    configurations,
    events,
    lists,
    questions,
    read_answer,
    read_configuration,
    read_event,
    read_list,
    read_question,
    read_reference,
    read_request,
    read_submission,
    requests,
    submissions,
)


@dataclass(frozen=True)
class Reader:
    """`make` draws a text, `read` raises if the reader breaks its promise."""

    name: str
    make: Callable[[Random], Text]
    read: Callable[[Text], None]


READERS: Sequence[Reader] = (
    Reader("submission", submissions, read_submission),
    Reader("list", lists, read_list),
    Reader("event", events, read_event),
    Reader("reference", submissions, read_reference),
    Reader("configuration", configurations, read_configuration),
    Reader("what-if", questions, read_question),
    Reader("request", requests, read_request),
    Reader("answer", answers, read_answer),
    Reader("notice", notices, read_notice),
    Reader("agent-notice", notices, partial(read_notice, queue="notices")),
    Reader("stream", changes, read_change),
    Reader("annotation", agent_answers, read_annotation),
)


def prepare(setattr_: Callable[..., None]) -> None:
    """What every function notes its faults with."""
    noting = NoteFaults(faults=MemoryFaults(), clock=FakeClock(), refusal=refusal)
    setattr_(bootstrap, "noting", lambda: noting)


__all__ = ["BUDGET_SECONDS", "READERS", "Reader", "prepare"]
