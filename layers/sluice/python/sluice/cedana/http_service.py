"""Cedana's HTTP API, one service for each cluster that its `Cluster` object names.

Only what the public tests of Cedana's daemon call (test/helpers/propagator.bash, August 2026);
docs/decisions/0014-cedana.md says which of it is not documented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import urllib3
from botocore.exceptions import BotoCoreError, ClientError

from sluice.cedana.driver import MODE
from sluice.cedana.pods import ActionProgress, CedanaAction, place
from sluice.cedana.service import CedanaApis
from sluice.cedana.settings import CedanaServiceSettings
from sluice.core.clusters.cluster_spec import read
from sluice.core.config.document import Fields
from sluice.errors import CheckpointServiceError, CheckpointServiceRefused, NotConfigured

if TYPE_CHECKING:
    from sluice.ports import Catalog, Clock

RUNC_ROOT: Final = "/run/containerd/runc/k8s.io"
FRESH_MS: Final = 300_000
"""How long a token is used before the secret is read again: it may have been rotated."""
OK, BAD, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY, BROKEN = 200, 400, 401, 403, 404, 429, 500
PASSING: Final = (UNAUTHORIZED, FORBIDDEN, TOO_MANY)
PROGRESS: Final = {"ready": ActionProgress.READY, "error": ActionProgress.FAILED}
_ID: Final = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{7,63}", re.ASCII)


@dataclass(frozen=True)
class CedanaService:
    """`token` is asked for every request, so that it may be renewed."""

    url: str
    cluster_id: str
    token: Callable[[], str]
    http: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(connect=3, read=10)
        )
    )

    def newest(self, pod_uid: str) -> str:
        status, text = self._call("GET", f"/v2/actions/from_pod/{pod_uid}")
        if status == NOT_FOUND:
            return ""
        return _action(self._checked("GET", status, text))

    def checkpoint(self, pod_uid: str) -> str:
        asked = {"pod_id": pod_uid, "runc_root": RUNC_ROOT}
        return _action(self._done("POST", "/v2/checkpoint/pod", asked))

    def restore(self, checkpoint: str) -> str:
        asked = {"action_id": checkpoint, "cluster_id": self.cluster_id, "reason": "manual"}
        return _action(self._done("POST", "/v2/restore/pod", asked))

    def look(self, action: str) -> CedanaAction:
        found = _json(self._done("GET", f"/v2/checkpoint/status/{action}"))
        if not isinstance(found, dict) or "status" not in found:
            raise CheckpointServiceError(
                f"Cedana's status of {action} cannot be read: {found!s:.200}"
            )
        progress = PROGRESS.get(str(found["status"]), ActionProgress.UNDER_WAY)
        return CedanaAction(progress, str(found.get("details") or ""))

    def retire(self, checkpoint: str) -> None:
        """By the id of the checkpoint, which only the list of actions tells."""
        listed = _json(self._done("GET", "/v2/actions"))
        ids = [
            str(each["checkpoint_id"])
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict)
            and each.get("action_id") == checkpoint
            and each.get("checkpoint_id")
        ]
        for each in ids:
            if _ID.fullmatch(each) is None:
                raise CheckpointServiceError(
                    f"Cedana names a checkpoint {each:.100}, which is no id"
                )
            status, text = self._call("PATCH", f"/v2/checkpoints/deprecate/{each}")
            if status != NOT_FOUND:
                self._checked("PATCH", status, text)

    def _done(self, method: str, path: str, body: dict[str, str] | None = None) -> str:
        return self._checked(method, *self._call(method, path, body))

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.token()}", "Content-Type": "application/json"}
        encoded = None if body is None else json.dumps(body).encode()
        try:
            answer = self.http.request(
                method, self.url + path, body=encoded, headers=headers, redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            why = type(error).__name__  # its text names objects, another one each time
            raise CheckpointServiceError(f"Cedana at {self.url} does not answer: {why}") from error
        return answer.status, answer.data.decode(errors="replace").strip()

    def _checked(self, method: str, status: int, text: str) -> str:
        if status == OK:
            return text
        told = f"{self.url} answers {method} with HTTP {status}: {text:.300}"
        if BAD <= status < BROKEN:
            raise CheckpointServiceRefused(told, lasting=status not in PASSING)
        raise CheckpointServiceError(told)


@dataclass
class CedanaServices:
    """`secrets` makes the client, which only deployments with Cedana need."""

    catalog: Catalog
    secrets: Callable[[], Any]
    clock: Clock
    _services: dict[CedanaServiceSettings, CedanaService] = field(default_factory=dict)
    _tokens: dict[str, tuple[int, str]] = field(default_factory=dict)

    def of(self, cluster: str) -> CedanaService:
        spec = read(
            Fields(self.catalog.snapshot().of("Cluster").get(cluster), "", [])
        ).services.get(MODE)
        if not isinstance(spec, CedanaServiceSettings):
            raise NotConfigured(
                f"Cluster {cluster} has no spec.cedana, and a workload there needs it"
            )
        if spec not in self._services:
            self._services[spec] = CedanaService(
                spec.url, spec.cluster_id, lambda: self._token(spec.token_secret)
            )
        return self._services[spec]

    @cached_property
    def _client(self) -> Any:
        return self.secrets()

    def _token(self, secret: str) -> str:
        """Kept in memory alone."""
        now = self.clock.now()
        read_at, token = self._tokens.get(secret, (0, ""))
        if not token or now - read_at > FRESH_MS:
            try:
                token = str(self._client.get_secret_value(SecretId=secret)["SecretString"]).strip()
            except (ClientError, BotoCoreError) as error:
                raise CheckpointServiceRefused(
                    f"the token of Cedana cannot be read: {error}"
                ) from error
            self._tokens[secret] = (now, token)
        return token


def _action(text: str) -> str:
    """The id that is the whole answer, in quotes or not."""
    found = text.strip('"')
    if _ID.fullmatch(found) is None:
        raise CheckpointServiceError(f"Cedana answers {text:.200}, which is no id of an action")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CheckpointServiceError(f"Cedana's answer is no JSON: {text:.200}") from error


def retire(apis: CedanaApis, uri: str) -> None:
    """Let Cedana forget a checkpoint by its address."""
    cluster, action = place(uri)
    apis.of(cluster).retire(action)
