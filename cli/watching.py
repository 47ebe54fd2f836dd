"""The live view of watched workloads, and what Ctrl-C does to a watching command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.client.exit_codes import ExitCode

from cli.errors import CommandExit
from cli.output import hint, paint

if TYPE_CHECKING:
    from sluice.client.watching import WorkloadDisplay

    from cli.app import App
    from cli.output import Json


@contextmanager
def interruptible(ids: Sequence[str]) -> Iterator[None]:
    """Turns Ctrl-C into an exit code, and says that the workloads continue."""
    try:
        yield
    except KeyboardInterrupt:
        what = "workload continues" if len(ids) == 1 else "workloads continue"
        hint(
            f"\ninterrupted; the {what}. "
            f"See `sluice wait {ids[0]}`, stop with `sluice cancel {ids[0]}`"
        )
        raise CommandExit(ExitCode.INTERRUPTED) from None


@dataclass
class PhaseLines:
    """One line on stderr for each change of phase; for logs and pipes."""

    seen: dict[str, str] = field(default_factory=dict)

    def __call__(self, workloads: Sequence[Json]) -> None:
        for workload in workloads:
            reason = (workload.get("reason") or {}).get("code", "")
            line = f"{workload['phase']} {reason}".strip()
            if self.seen.get(workload["id"]) != line:
                self.seen[workload["id"]] = line
                phase, _, rest = line.partition(" ")
                name = workload.get("name") or ""
                hint(f"{workload['id']}  {name}  {paint(phase)} {rest}".rstrip())


@contextmanager
def live_view(app: App) -> Iterator[WorkloadDisplay]:
    """A live table on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield PhaseLines()
        return
    from cli.live import table_view  # noqa: PLC0415 - a verb pays only for what it uses

    with table_view(app) as view:
        yield view
