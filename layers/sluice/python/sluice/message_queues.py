"""The SQS queues: who takes their messages, how often, and what to do with dead letters.

infra deploys this table, the wiring and the api read it, docs/architecture.md shows it. A new queue
is one row here, and a row of docs/architecture.md, which a test compares. Timeouts of functions:
infra/functions.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueue:
    """One queue; `visibility_seconds` is at least three timeouts of its consumer, but see below.

    A message waits that long whose worker was killed. AWS advises six timeouts, so that throttling
    does not use up the tries; here a message may be tried twice as often instead, which is harmless
    for all of them (docs/decisions/0011-visibility.md).
    """

    name: str
    consumer: str
    """The function that takes its messages."""
    visibility_seconds: int
    receives: int = 10
    """How often a message is delivered before it becomes a dead letter."""
    fifo: bool = False
    window_seconds: int | None = None
    """How long Lambda collects messages for one batch; None: it does not."""
    oldest_seconds: int = 300
    """An alarm rises when a message waits longer."""
    irreplaceable: bool = False
    """Its messages exist nowhere else; those of other queues are sent again anyway."""
    advice: str
    """What an operator does with its dead letters."""


_SEND_AGAIN: Final = "mend the cause, then redrive; nobody else has them"

QUEUES: Final = (
    MessageQueue(
        name="submissions",
        consumer="submit",
        visibility_seconds=90,
        irreplaceable=True,
        advice=_SEND_AGAIN,
    ),
    MessageQueue(
        name="events",
        consumer="submit",
        visibility_seconds=90,
        irreplaceable=True,
        advice=_SEND_AGAIN,
    ),
    MessageQueue(
        name="kicks",
        consumer="admit",
        visibility_seconds=60,
        fifo=True,
        oldest_seconds=120,
        advice="sweep kicks every minute anyway: purge",
    ),
    MessageQueue(
        name="commands",
        consumer="act",
        visibility_seconds=180,
        receives=20,
        advice="observe repeats them anyway: purge",
    ),
    MessageQueue(
        name="provisions",
        consumer="provision",
        visibility_seconds=91,
        window_seconds=1,  # one plan serves whatever has been asked meanwhile
        advice="a schedule asks every minute anyway: purge",
    ),
    MessageQueue(
        name="interruptions",
        consumer="interrupt",
        # A spot notice lasts two minutes: a quick second try beats the advice of six timeouts.
        visibility_seconds=30,
        receives=5,
        oldest_seconds=60,
        advice="the news is stale, observe sees the loss: purge",
    ),
    MessageQueue(
        name="notices",
        consumer="interrupt",  # of node agents: their role reaches no other queue
        visibility_seconds=30,
        receives=5,
        oldest_seconds=60,
        advice="the news is stale, observe sees the loss: purge",
    ),
    MessageQueue(
        name="completions",
        consumer="complete",
        visibility_seconds=90,
        advice="sweep asks again within 32 minutes: purge, or redrive",
    ),
    MessageQueue(
        name="answers",
        consumer="answer",
        visibility_seconds=90,
        irreplaceable=True,
        advice=_SEND_AGAIN,
    ),
)
BY_NAME: Final[Mapping[str, MessageQueue]] = {queue.name: queue for queue in QUEUES}


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """Where messages end that nobody took; `consumer` is "" where no function takes them again."""

    name: str
    consumer: str
    irreplaceable: bool
    advice: str

    @property
    def redrivable(self) -> bool:
        return bool(self.consumer)


# Failed asynchronous and stream invocations; what rules and schedules could not deliver.
LAST_RESORTS: Final = (
    DeadLetterQueue(
        "failures",
        "",
        irreplaceable=False,
        advice="sweep and observe repair what they were about: purge",
    ),
    DeadLetterQueue(
        "undelivered", "", irreplaceable=False, advice="mend the rule or schedule, then purge"
    ),
)
DEAD_LETTERS: Final[Mapping[str, DeadLetterQueue]] = {
    queue.name: DeadLetterQueue(queue.name, queue.consumer, queue.irreplaceable, queue.advice)
    for queue in QUEUES
} | {queue.name: queue for queue in LAST_RESORTS}
