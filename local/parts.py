"""A part is one program of the embedded default; a step is what must happen between programs."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

OK = 200
PROBE_SECONDS = 2.0


@dataclass(frozen=True)
class Health:
    """An address that answers 200 when its part is ready."""

    url: str
    authority: Path | None = None  # whose certificates to trust; None for plain HTTP

    def is_good(self) -> bool:
        context = ssl.create_default_context(cafile=self.authority) if self.authority else None
        try:
            with urllib.request.urlopen(self.url, context=context, timeout=PROBE_SECONDS) as answer:
                return bool(answer.status == OK)
        except (urllib.error.URLError, OSError):
            return False


@dataclass(frozen=True)
class Part:
    name: str
    command: tuple[str, ...]
    port: int | None
    health: Health | None
    after: tuple[str, ...] = ()  # parts and steps that must be ready before it starts
    environment: dict[str, str] = field(default_factory=dict)
    restartable: bool = True  # False: what it remembers is in its memory alone
    grace_seconds: float = 10.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Step:
    name: str
    run: Callable[[], None]
    after: tuple[str, ...]
