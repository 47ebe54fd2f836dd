"""Types of flags."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cli.figures import seconds

if TYPE_CHECKING:
    SecondsParameter = click.ParamType[float]
    TimeParameter = click.ParamType[float | datetime]
else:  # older releases of click have no generic class
    SecondsParameter = TimeParameter = click.ParamType


class Duration(SecondsParameter):
    """A length of time such as 90s, 15m or 2d; in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PointInTime(TimeParameter):
    """A moment: a length of time before now such as 24h, or an ISO 8601 time, UTC without zone."""

    name = "moment"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | datetime:
        if isinstance(value, (float, datetime)):
            return value
        try:
            return seconds(str(value))
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no moment; write for example 24h (ago) or 2026-11-01", param, ctx
            )
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def epoch_ms(moment: float | datetime, now: float) -> int:
    """Of a `PointInTime`; `now` in epoch seconds."""
    at = moment.timestamp() if isinstance(moment, datetime) else now - moment
    return int(at * 1_000)


DURATION = Duration()
POINT_IN_TIME = PointInTime()
