"""The checkpoint endpoint of a process node."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

OK = 200


class CheckpointFailedError(Exception):
    """A checkpoint that was not made, with the reason in one line."""


def _pool() -> urllib3.PoolManager:
    # The nodes sign their serving certificates themselves; the connection stays on the machine.
    return urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False, retries=False)


@dataclass(frozen=True)
class Kubelet:
    token: Callable[[], str]
    pool: urllib3.PoolManager = field(default_factory=_pool)

    def checkpoint(
        self, address: str, namespace: str, pod: str, container: str, *, seconds: int
    ) -> Path:
        """The archive on the node's disk; the container runs on. Raises CheckpointFailedError.

        Source: facts, checkpoint-restore §1. `address` is `HOST:PORT`.
        """
        url = f"https://{address}/checkpoint/{namespace}/{pod}/{container}?timeout={seconds}"
        headers = {"Authorization": f"Bearer {self.token()}"}
        timeout = urllib3.Timeout(connect=3, read=seconds + 5)
        try:
            reply = self.pool.request("POST", url, headers=headers, timeout=timeout)
        except urllib3.exceptions.HTTPError as error:
            raise CheckpointFailedError(f"the kubelet does not answer: {error}") from error
        if reply.status != OK:
            text = reply.data.decode(errors="replace").strip()
            raise CheckpointFailedError(f"kubelet: {reply.status}: {text[:500]}")
        return Path(json.loads(reply.data)["items"][0])
