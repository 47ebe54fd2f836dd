"""Reads the logs of a workload, live or from the archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sluice.client.watching import ENDED

if TYPE_CHECKING:
    from sluice.client.connection import Connection

Json = dict[str, Any]

FOLLOW_SECONDS = 1.0
LOOKS_AFTER_END = 5


class LogReader:
    """Reads new text of a workload's logs; it keeps an offset for each container."""

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
        self.offsets: dict[tuple[int, str, str], int] = {}

    def new_text(self) -> Iterator[tuple[str, str]]:
        """(pod/container, new text) for each log that has grown."""
        wanted = {} if self.generation is None else {"generation": str(self.generation)}
        listed = self.connection.api.get("workloads", self.id, "logs", **wanted)["items"]
        chosen = [log for log in listed if self._chosen(log)]
        for log in chosen:
            label = f"{log['pod']}/{log['container']}" if len(chosen) > 1 else ""
            for text in self._rest(log):
                yield label, text

    def _chosen(self, log: Json) -> bool:
        return self.pod in {"", log["pod"]} and self.container in {"", log["container"]}

    def _rest(self, log: Json) -> Iterator[str]:
        key = (int(log["generation"]), str(log["pod"]), str(log["container"]))
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
