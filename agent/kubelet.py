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
LOOPBACK = ("127.0.0.1", "localhost")


class CheckpointRefusedError(Exception):
    """The kubelet's words."""


@dataclass(frozen=True)
class Kubelet:
    """`root` is where the agent sees the kubelet's folder /var/lib/kubelet.

    `authority` signs its certificate; None only for nodes on loopback, which sign it themselves.
    """

    address: str
    port: int
    authority: Path | None
    root: Path
    token: str

    def checkpoint(self, namespace: str, pod: str, container: str, *, seconds: int) -> Path:
        """Save a running container, which goes on. Raises CheckpointRefusedError, OSError.

        A process node answers with a pipe; kubelets do not know the word and write a file.
        """
        path = "/".join(quote(part) for part in (namespace, pod, container))
        trusted = ssl.create_default_context(cafile=self.authority)
        # The certificate names the node, not the address that it is reached by.
        trusted.check_hostname = False
        if self.authority is None:
            if self.address not in LOOPBACK:
                raise CheckpointRefusedError(f"no authority is known for {self.address}")
            trusted.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            self.address, self.port, context=trusted, timeout=seconds + 5
        )
        try:
            connection.request(
                "POST",
                f"/checkpoint/{path}?timeout={seconds}&stream=true",
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
        named = Path(archive)
        inside = named.is_relative_to(KUBELET_ROOT)
        return self.root / named.relative_to(KUBELET_ROOT) if inside else named
