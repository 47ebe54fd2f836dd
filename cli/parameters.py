"""Types of flags."""

from __future__ import annotations

import click

from cli.figures import seconds


class Duration(click.ParamType[float]):
    """A length of time such as 90s, 15m or 2d; in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
