"""Look at messages that were given up, have them taken after all, or throw them away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.core.lifecycle.completion import WITHHELD, token_in
from sluice.message_queues import DEAD_LETTERS
from sluice.usecases.request_errors import ConflictError, NotFoundError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.core.lifecycle.faults import Fault
    from sluice.message_queues import DeadLetterQueue
    from sluice.ports import Clock, Consumers, DeadLetter, DeadLetters, Faults
    from sluice.usecases.callers import Authority

SHOWN: Final = 10  # letters of each queue in a list of all
MOST_SHOWN: Final = 200
HEAD: Final = 500  # characters of a body
LOOK_SECONDS: Final = 20  # hidden from others while somebody looks
HAND_SECONDS: Final = 60  # longer than a request may take: nobody else hands out the same one


@dataclass(frozen=True, kw_only=True)
class DeadLetterOffice:
    """A letter is removed only after the function of its queue has dealt with it.

    The function gets it as SQS would bring it, with its first sender and message id: so a document
    counts as its own sender's, and as the same workload as before.
    """

    letters: DeadLetters
    consumers: Consumers
    faults: Faults
    clock: Clock

    def listed(self, caller: Authority) -> Json:
        """Every queue, with how many lie there and the first of them."""
        caller.require_admin("reading dead letters")
        return {"items": [self._view(queue, SHOWN) for queue in DEAD_LETTERS]}

    def of(self, caller: Authority, queue: str, limit: int) -> Json:
        """One queue, with up to `limit` of its letters. Raises NotFoundError."""
        caller.require_admin("reading dead letters")
        _known(queue)
        return self._view(queue, min(limit, MOST_SHOWN))

    def redrive(self, caller: Authority, queue: str) -> Json:
        """Hands one batch to the queue's function: `{queue, taken, refused, why, left}`.

        Raises NotFoundError, and ConflictError for letters that no function can take.
        """
        caller.require_admin("redriving dead letters")
        shape = _known(queue)
        if not shape.redrivable:
            raise ConflictError(
                f"the letters of {queue} tell of calls that failed; nobody takes them",
                hint=shape.advice,
            )
        letters = self.letters.take(queue, hidden_seconds=HAND_SECONDS)
        handled = self.consumers.hand(queue, letters) if letters else None
        refused = handled.refused if handled else frozenset[str]()
        taken = [each for each in letters if each.id not in refused]
        self.letters.remove(queue, taken)
        return {
            "queue": queue,
            "taken": len(taken),
            "refused": len(letters) - len(taken),
            "why": handled.why if handled else "",
            "left": self.letters.count(queue),
        }

    def purge(self, caller: Authority, queue: str, *, dry_run: bool) -> Json:
        """Deletes all of them: `{queue, purged, dryRun}`, the count being approximate."""
        caller.require_admin("purging dead letters")
        _known(queue)
        count = self.letters.count(queue)
        if count and not dry_run:
            self.letters.purge(queue)
        return {"queue": queue, "purged": count, "dryRun": dry_run}

    def _view(self, queue: str, limit: int) -> Json:
        shape, count = DEAD_LETTERS[queue], self.letters.count(queue)
        found = self._looked_at(queue, min(limit, count))
        fault = _newest(self.faults.noted(), shape.consumer) if found else ""
        return {
            "queue": queue,
            "count": count,
            "function": shape.consumer,
            "data": shape.irreplaceable,
            "redrivable": shape.redrivable,
            "advice": shape.advice,
            "items": [_letter(each, fault) for each in found],
        }

    def _looked_at(self, queue: str, limit: int) -> list[DeadLetter]:
        """Different ones, since those seen are hidden until all are; then everybody sees them."""
        found: list[DeadLetter] = []
        try:
            while len(found) < limit:
                more = self.letters.take(queue, hidden_seconds=LOOK_SECONDS)
                if not more:
                    break
                found += more
        finally:
            self.letters.give_back(queue, found)
        return found[:limit]


def _known(queue: str) -> DeadLetterQueue:
    if queue not in DEAD_LETTERS:
        raise NotFoundError(f"there is no queue {queue}", hint=f"known: {', '.join(DEAD_LETTERS)}")
    return DEAD_LETTERS[queue]


def _newest(faults: Iterable[Fault], function: str) -> str:
    """What last kept the function from its work, if anybody knows."""
    of_function = [fault for fault in faults if fault.function == function]
    return max(of_function, key=lambda fault: fault.at).message if of_function else ""


def _letter(letter: DeadLetter, fault: str) -> Json:
    token = token_in(letter.body)
    body = letter.body.replace(token, WITHHELD) if token else letter.body
    return {
        "id": letter.id,
        "sender": letter.attributes.get("SenderId", ""),
        "sentAt": int(letter.attributes.get("SentTimestamp", "0")) or None,
        "why": why(letter) or fault,
        "body": body[:HEAD],
        "size": len(letter.body.encode()),
    }


def why(letter: DeadLetter) -> str:
    """What the service that gave the letter up says of it; "" for SQS, which says nothing.

    Source: EventBridge and Scheduler write ERROR_CODE and ERROR_MESSAGE as message attributes,
    Lambda ErrorMessage; Lambda's records of failed invocations have requestContext.condition and
    the function's answer in the body.
    """
    said = letter.said
    parts = [
        said.get("ERROR_CODE", ""),
        said.get("ERROR_MESSAGE", "") or said.get("ErrorMessage", ""),
    ]
    if not any(parts):
        record = _json(letter.body)
        context, answer = record.get("requestContext"), record.get("responsePayload")
        parts = [_text(context, "condition"), _text(answer, "errorMessage")]
    return ": ".join(filter(None, parts))


def _json(body: str) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(record: Any, name: str) -> str:
    found = record.get(name) if isinstance(record, dict) else None
    return found if isinstance(found, str) else ""
