"""Reads the logs of a workload, live or from the archive, one generation after the other.

The log of a run that was dumped goes on elsewhere with all that it has printed before. What was
read of the generation before is left out, so that the joined log has no line twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.client.watching import ENDED

if TYPE_CHECKING:
    from sluice.client.connection import Connection

Json = dict[str, Any]
Key = tuple[int, str, str]

FOLLOW_SECONDS = 1.0
LOOKS_AFTER_END = 5


@dataclass
class Printed:
    """What was read of a member's newest generation, and of the one before what may come again."""

    generation: int
    text: str = ""
    before: str = ""

    def new_of(self, text: str) -> str:
        """What of the next text of this generation was not in the one before."""
        self.text += text
        if not self.before:
            return text
        same = _common(self.before, text)
        # A whole match may go on with the next text; anything else ends the search.
        self.before = self.before[same:] if same == len(text) else ""
        return text[same:]


class LogReader:
    """Reads new text of a workload's logs; it keeps an offset for each container.

    Without a `generation` all of them are joined, with a line between two.
    """

    def __init__(
        self,
        connection: Connection,
        workload_id: str,
        generation: int | None,
        pod: str,
        container: str,
    ) -> None:
        self.connection, self.id, self.generation = connection, workload_id, generation
        self.pod, self.container = pod, container
        self.offsets: dict[Key, int] = {}
        self.over: set[Key] = set()
        """Logs of earlier generations that were read to their ends."""
        self.printed: dict[tuple[int, str], Printed] = {}
        """By member: its rank among the pods of its generation, and its container."""
        self.newest = -1
        """The generation of the last text."""

    def new_text(self) -> Iterator[tuple[str, str]]:
        """(pod/container, new text) for each log that has grown."""
        wanted = {"all": "1"} if self.generation is None else {"generation": str(self.generation)}
        listed = self.connection.api.get("workloads", self.id, "logs", **wanted)["items"]
        chosen = [log for log in listed if self._chosen(log)]
        last = max((int(log["generation"]) for log in chosen), default=0)
        for log in chosen:
            generation = int(log["generation"])
            of_run = [each for each in chosen if int(each["generation"]) == generation]
            key = (generation, str(log["pod"]), str(log["container"]))
            if key in self.over:
                continue
            label = f"{key[1]}/{key[2]}" if len(of_run) > 1 else ""
            pods = sorted({str(each["pod"]) for each in of_run})
            member = (pods.index(key[1]), key[2])
            known = self.printed.get(member)
            if known is None or known.generation < generation:
                before = known.text if known and log.get("continues") else ""
                self.printed[member] = Printed(generation, before=before)
            yield from self._joined(key, label, self.printed[member])
            if generation < last and not log["live"]:
                self.over.add(key)

    def _joined(self, key: Key, label: str, known: Printed) -> Iterator[tuple[str, str]]:
        for text in self._rest(key):
            new = known.new_of(text) if known.generation == key[0] else text
            if new and key[0] > self.newest:
                if self.newest >= 0:
                    yield "", f"--- generation {key[0]} ---\n"
                self.newest = key[0]
            if new:
                yield label, new

    def _chosen(self, log: Json) -> bool:
        return self.pod in {"", log["pod"]} and self.container in {"", log["container"]}

    def _rest(self, key: Key) -> Iterator[str]:
        while True:
            part = self.connection.api.get(
                "workloads",
                self.id,
                "logs",
                generation=str(key[0]),
                pod=key[1],
                container=key[2],
                offset=str(self.offsets.get(key, 0)),
            )
            self.offsets[key] = part["offset"]
            if part["text"]:
                yield part["text"]
            if not part["more"]:
                return

    def follow(self, until: float | None = None) -> Iterator[tuple[str, str]]:
        """New text until the workload has ended, or until this time.

        Reads a few times more after the end of a workload without logs: the archive may be late.
        """
        seen = False
        looks_after_end = 0
        while True:
            ended = self.connection.api.workload(self.id)["phase"] in ENDED
            for label, text in self.new_text():
                seen = True
                yield label, text
            looks_after_end += ended
            if ended and (seen or looks_after_end > LOOKS_AFTER_END):
                return
            if until is not None and self.connection.now() >= until:
                return
            self.connection.sleep(FOLLOW_SECONDS)


def _common(one: str, other: str) -> int:
    """How many characters both begin with, up to the end of a line unless all of `other` is."""
    if one.startswith(other):
        return len(other)
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return other.rfind("\n", 0, same) + 1
