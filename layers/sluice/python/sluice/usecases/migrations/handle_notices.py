"""A batch of news: several machines side by side, those with the dearest work on them first."""

from __future__ import annotations

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
from sluice.core.values import strict_json
from sluice.errors import SluiceError
from sluice.usecases.migrations.interrupt import Interrupt, NoticeOutcome
from sluice.usecases.migrations.machines_at_risk import MachineAtRisk

BESIDE: Final = 10
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
        seen = self.look(bodies)

        def handle(key: str) -> list[NoticeOutcome]:
            return self.interrupt(
                strict_json.parse(bodies[key]),
                account=account,
                region=region,
                of_agent=key in of_agents,
                seen=seen.get(key),
            )

        order = sorted(bodies, key=lambda key: worth(seen.get(key, {})), reverse=True)
        return {key: self.pool.submit(handle, key) for key in order}

    def look(self, bodies: Mapping[str, str]) -> dict[str, dict[str, MachineAtRisk | None]]:
        """By message: the machines that it warns of. Of a single warning nothing is compared."""
        warnings = {key: found for key, body in bodies.items() if (found := _warnings(body))}
        if len(warnings) == 1:
            return {}
        return dict(zip(warnings, self.pool.map(self.machines, warnings.values()), strict=True))

    def machines(self, notices: Iterable[Notice]) -> dict[str, MachineAtRisk | None]:
        """By instance; a machine that cannot be looked at is looked at again when handled."""
        try:
            return {notice.instance: self.interrupt.machines.look(notice) for notice in notices}
        except SluiceError:
            return {}


def worth(machines: Mapping[str, MachineAtRisk | None]) -> Worth:
    """Of the dearest workload on these machines."""
    every = (each.value for machine in machines.values() if machine for each in machine.at_risk)
    return max(every, default=_NOTHING)


def _warnings(body: str) -> list[Notice]:
    """The machines of which a message says that they will go; nothing of any other message."""
    try:
        heard = read_event(strict_json.parse(body))
    except ValueError:
        return []
    if not isinstance(heard, list | tuple) or isinstance(
        heard, UnreadableEvent | ReservationNotice
    ):
        return []
    return [each for each in heard if each.kind not in LOSSES | ADVICE]
