"""What the instance metadata service says of the machine's end: the second channel beside events.

Source: EC2's documentation of `spot/instance-action` and `events/recommendations/rebalance`, read
with the token of IMDSv2. AWS advises to look every five seconds.
"""

import http.client
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger(__name__)
ADDRESS = "http://169.254.169.254"
POLL_SECONDS = 5.0
PATIENCE_SECONDS = 2.0
TOKEN_SECONDS = 300
# Where IMDS says it, the name of the notice for Sluice, and the field with its time.
SIGNALS = (
    ("spot/instance-action", "spot", "time"),
    ("events/recommendations/rebalance", "rebalance", "noticeTime"),
)
NOTICED = "Sluice Instance Notice"


class SilentError(Exception):
    """The metadata service does not answer, or says what nobody understands."""


@dataclass(frozen=True)
class Metadata:
    """`get` reads one path below `/latest/meta-data/`; None for what is not set."""

    address: str = ADDRESS

    def get(self, path: str) -> str | None:
        """Raises SilentError."""
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        _, token = self._ask("PUT", "/latest/api/token", headers)
        headers = {"X-aws-ec2-metadata-token": token}
        status, text = self._ask("GET", f"/latest/meta-data/{path}", headers)
        return text if status == http.HTTPStatus.OK else None

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        where = urlsplit(self.address)
        connection = http.client.HTTPConnection(where.netloc, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, where.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise SilentError(str(error)) from error
        finally:
            connection.close()
        if answer.status not in (http.HTTPStatus.OK, http.HTTPStatus.NOT_FOUND):
            raise SilentError(f"{method} {path}: HTTP {answer.status}")
        return answer.status, text


@dataclass(frozen=True)
class Listener:
    """Sends each notice once; Sluice knows copies from EventBridge by instance, kind and launch."""

    metadata: Metadata
    send: Callable[[dict[str, Any]], None]  # raises what `failures` names
    account: str
    region: str
    failures: tuple[type[Exception], ...] = ()
    told: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        expected: tuple[type[Exception], ...] = (SilentError, *self.failures)
        while not stop.is_set():
            try:
                self.look()
            except expected as error:
                log.warning("no word on this machine's end: %s", error)
            stop.wait(POLL_SECONDS)

    def look(self) -> None:
        """One round; what could not be sent is sent again at the next."""
        for kind, envelope in self._heard():
            self.send(envelope)
            self.told.add(kind)
            log.info("told: %s", envelope)

    def _heard(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path, kind, at in SIGNALS:
            text = None if kind in self.told else self.metadata.get(path)
            if text is None:
                continue
            try:
                said = json.loads(text)
                time = said[at]
            except (ValueError, KeyError, TypeError) as error:
                raise SilentError(f"{path}: {text[:200]!r}") from error
            detail = {"instance-id": self.metadata.get("instance-id"), "kind": kind, "at": time}
            if kind == "spot":
                detail["instance-action"] = said.get("action", "")
            yield kind, self._envelope(detail)

    def _envelope(self, detail: dict[str, Any]) -> dict[str, Any]:
        return {
            "source": "sluice",
            "detail-type": NOTICED,
            "time": datetime.now(UTC).isoformat(),
            "account": self.account,
            "region": self.region,
            "detail": detail,
        }
