"""What every command shares: the connection to the deployment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from sluice.client.connection import Connection


@dataclass
class App(Connection):
    """The connection of one command."""


pass_app: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(App)
