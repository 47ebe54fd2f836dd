"""A batch of news: several machines side by side, those with the dearest work on them first."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from sluice.core.migrations.interruption import (
    ADVICE,
    LOSSES,
    Notice,
    ReservationNotice,
    UnreadableEvent,
    read_event,
)
from sluice.errors import SluiceError
from sluice.usecases.migrations.interrupt import Interrupt, NoticeOutcome

BESIDE: Final = 4
"""Machines handled at once by one Lambda; each asks a cluster some ten times."""
Worth = tuple[int, int]
_NOTHING: Final[Worth] = (-(2**63), 0)


@dataclass(frozen=True)
class HandleNotices:
    interrupt: Interrupt
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(BESIDE))

    def __call__(
        self,
        bodies: Mapping[str, str],
        *,
        account: str,
        region: str,
        of_agents: Collection[str] = (),
    ) -> dict[str, Future[list[NoticeOutcome]]]:
        """What becomes of each message, by its id; a Future raises what its message alone met.

        `of_agents`: the ids of messages that node agents sent.
        """

        def handle(key: str) -> list[NoticeOutcome]:
            envelope, of_agent = json.loads(bodies[key]), key in of_agents
            return self.interrupt(envelope, account=account, region=region, of_agent=of_agent)

        return {key: self.pool.submit(handle, key) for key in self.dearest_first(bodies)}

    def dearest_first(self, bodies: Mapping[str, str]) -> list[str]:
        """Ids of messages; only warnings are worth looking for what they endanger."""
        warnings = {key: found for key, body in bodies.items() if (found := _warnings(body))}
        if len(warnings) == 1:
            return list(bodies)
        worth = dict(zip(warnings, self.pool.map(self.worth, warnings.values()), strict=True))
        return sorted(bodies, key=lambda key: worth.get(key, _NOTHING), reverse=True)

    def worth(self, notices: Iterable[Notice]) -> Worth:
        """Of the dearest workload on these machines; handling tells what hides it."""
        try:
            found = [each for notice in notices for each in self.interrupt.doomed(notice)]
        except SluiceError:
            return _NOTHING
        return max((each.value for each in found), default=_NOTHING)


def _warnings(body: str) -> list[Notice]:
    """The machines of which a message says that they will go; nothing of any other message."""
    try:
        heard = read_event(json.loads(body))
    except ValueError:
        return []
    if not isinstance(heard, list | tuple) or isinstance(
        heard, UnreadableEvent | ReservationNotice
    ):
        return []
    return [each for each in heard if each.kind not in LOSSES | ADVICE]
