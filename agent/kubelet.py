"""The kubelet of the agent's own node: its checkpoint endpoint.

Source: facts of the kubelet checkpoint API (KEP-2008); needs `create` on `nodes/checkpoint`.
"""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

KUBELET_ROOT = Path("/var/lib/kubelet")  # how the kubelet itself names the folder
PATIENCE_SECONDS = 115  # the whole notice: more is never left


class CheckpointRefusedError(Exception):
    """The kubelet's words."""


@dataclass(frozen=True)
class Kubelet:
    """`root` is where the agent sees the kubelet's folder /var/lib/kubelet."""

    address: str
    port: int
    authority: Path
    root: Path
    token: str

    def checkpoint(self, namespace: str, pod: str, container: str) -> Path:
        """Save a running container, which goes on. Raises CheckpointRefusedError, OSError."""
        path = "/".join(quote(part) for part in (namespace, pod, container))
        trusted = ssl.create_default_context(cafile=self.authority)
        # The certificate names the node, not the address that it is reached by.
        trusted.check_hostname = False
        connection = http.client.HTTPSConnection(
            self.address, self.port, context=trusted, timeout=PATIENCE_SECONDS
        )
        try:
            connection.request(
                "POST",
                f"/checkpoint/{path}?timeout={PATIENCE_SECONDS}",
                headers={"Authorization": f"Bearer {self.token}"},
            )
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace").strip()
        except http.client.HTTPException as error:
            raise CheckpointRefusedError(f"no answer: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise CheckpointRefusedError(f"HTTP {answer.status}: {text}")
        (archive,) = json.loads(text)["items"]
        return self.root / Path(archive).relative_to(KUBELET_ROOT)
