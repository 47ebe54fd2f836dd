"""The events of several watches of one cluster in one queue."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.core.lifecycle import in_place, job_status
from sluice.errors import ClusterError
from sluice.ports import Clock, Cluster, Document
from sluice.usecases.running.problems import Problems

SELECTOR = job_status.WORKLOAD_LABEL
TICK_SECONDS = 0.1
MOST_EVENTS = 500

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
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)

    def follow(self, versions: Mapping[str, str], door: Mapping[str, str]) -> None:
        """The kinds to watch, and the resource version from which to start.

        `versions` of what Sluice runs, `door` of what users create.
        """
        watches = [(kind, kind, SELECTOR, version) for kind, version in versions.items()]
        watches += [(kind, DOOR, in_place.QUEUE_LABEL, version) for kind, version in door.items()]
        for watch in watches:
            threading.Thread(target=self._follow, args=watch, daemon=True).start()

    def _follow(self, kind: str, told_as: str, selector: str, version: str) -> None:
        left = (self.until - self.clock.now()) / 1000
        try:
            watch = self.cluster.watch(kind, selector=selector, version=version, seconds=left)
            for change, document in watch:
                if change == "ERROR" or self.ended.is_set():
                    return
                if change != "BOOKMARK":
                    self.events.put((change, told_as, document))
        except ClusterError as error:
            self.problems.report(error)  # the next run lists everything again
        finally:
            self.ended.set()

    def take(self, wait: float = TICK_SECONDS) -> list[Event]:
        """The events that are there, waiting at most `wait` seconds for the first.

        Their number is bounded, so that the observer looks at its clock and lease in between.
        """
        taken: list[Event] = []
        with contextlib.suppress(queue.Empty):
            taken.append(self.events.get(block=wait > 0, timeout=wait))
            while len(taken) < MOST_EVENTS:
                taken.append(self.events.get_nowait())
        return taken
