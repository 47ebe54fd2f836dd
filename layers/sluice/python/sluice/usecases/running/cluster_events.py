"""The events of several watches of one cluster in one queue."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.core.clusters.judged_fields import judged_fields
from sluice.core.lifecycle import in_place, job_status
from sluice.errors import ClusterError
from sluice.ports import Clock, Cluster, Document
from sluice.usecases.running.problems import Problems

SELECTOR = job_status.WORKLOAD_LABEL
TICK_SECONDS = 0.1
MOST_EVENTS = 500
GONE = 410

Event = tuple[str, str, Document]  # change, kind (or DOOR), document
DOOR = "door"
"""Instead of a kind: what users create themselves, in a watch of its own."""


@dataclass
class ClusterEvents:
    """Watches each kind in a thread; a watch that ends or breaks sets `ended`."""

    cluster: Cluster
    clock: Clock
    until: int
    ended: threading.Event
    problems: Problems
    versions: dict[str, str]
    """The kinds that Sluice runs, and up to which resource version their events were taken."""
    door: Mapping[str, str] = field(default_factory=dict)
    """The kinds that users create, and from which resource version to watch."""
    events: queue.SimpleQueue[tuple[Event, str]] = field(default_factory=queue.SimpleQueue)
    broken: bool = False
    """Whether a watch told an error: what it did not tell is not known."""
    expired: bool = False
    """Whether a version is too old to go on from (410 Gone)."""

    def follow(self) -> None:
        watches = [(kind, kind, SELECTOR, version) for kind, version in self.versions.items()]
        watches += [(kind, DOOR, in_place.QUEUE_LABEL, each) for kind, each in self.door.items()]
        for watch in watches:
            threading.Thread(target=self._follow, args=watch, daemon=True).start()

    def _follow(self, kind: str, told_as: str, selector: str, version: str) -> None:
        left = (self.until - self.clock.now()) / 1000
        try:
            watch = self.cluster.watch(kind, selector=selector, version=version, seconds=left)
            for change, document in watch:
                if change == "ERROR":
                    self.broken = True
                    self.expired |= document.get("code") == GONE
                if change == "ERROR" or self.ended.is_set():
                    return
                at = document["metadata"].get("resourceVersion", "")
                whole = change == "BOOKMARK" or told_as == DOOR
                kept = document if whole else judged_fields(kind, document)
                self.events.put(((change, told_as, kept), at))
        except ClusterError as error:
            self.broken = True
            self.expired |= error.status == GONE
            if not self.expired:
                self.problems.report(error)  # the next run lists everything again
        finally:
            self.ended.set()

    def take(self, wait: float = TICK_SECONDS) -> list[Event]:
        """The events that are there, waiting at most `wait` seconds for the first.

        Their number is bounded, so that the observer looks at its clock and lease in between.
        """
        taken: list[Event] = []
        with contextlib.suppress(queue.Empty):
            self._note(taken, self.events.get(block=wait > 0, timeout=wait))
            while len(taken) < MOST_EVENTS:
                self._note(taken, self.events.get_nowait())
        return taken

    def _note(self, taken: list[Event], found: tuple[Event, str]) -> None:
        event, version = found
        if version and event[1] != DOOR:
            self.versions[event[1]] = version
        if event[0] != "BOOKMARK":
            taken.append(event)
