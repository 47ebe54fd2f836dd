"""`sluice config`: the settings in force, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.client.errors import NotDeployedError, PermissionDeniedError, SluiceClientError
from sluice.client.settings import PUBLISHED

from cli.app import pass_app
from cli.output import Column, Json, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

COLUMNS = (
    Column("SETTING", lambda row: row["setting"]),
    Column("VALUE", lambda row: row["value"]),
    Column("SOURCE", lambda row: row["source"]),
)


@click.group()
def config() -> None:
    """Show settings and where they come from."""


@config.command()
@output_option
@pass_app
def show(app: App, *, output: str) -> None:
    """Print which deployment is used and why."""
    settings = app.settings
    chosen = {
        "name": settings.name,
        "profile": settings.profile,
        "region": settings.region,
        "endpoint": settings.endpoint_url,
    }
    items: list[Json] = [
        {"setting": name, "value": setting.value, "source": setting.source}
        for name, setting in chosen.items()
    ]
    items += [_published(app, parameter) for parameter in PUBLISHED]
    rows(items, COLUMNS, output, name="setting")


def _published(app: App, parameter: str) -> Json:
    """A published name, read from SSM unless a flag, a variable or the embedded stack has it.

    The source of a name that cannot be read says why; the whole answer of AWS goes to stderr.
    """
    try:
        found = app.aws.published(parameter)
    except NotDeployedError:
        return {"setting": parameter, "value": "", "source": "not deployed"}
    except SluiceClientError as error:
        hint(f"{parameter}: {error.message}")
        denied = isinstance(error, PermissionDeniedError)
        source = "no right to read it (ssm:GetParameter)" if denied else "cannot be read now"
        return {"setting": parameter, "value": "", "source": source}
    return {"setting": parameter, "value": found.value, "source": found.source}
