"""Pushes a checkpoint as an image that containerd restores instead of starting it.

One layer, the kubelet's archive as it is, and one annotation. When containerd restores, it pulls
the image that the container was made of again, by the name in `config.dump`, without credentials
and past its own mirrors. Where the registry has that image too, a second layer names it there.
Source: OCI distribution specification 1.1; containerd 2.1 to 2.3, internal/cri/server.
"""

import hashlib
import http.client
import io
import json
import platform
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONTAINER = "org.criu.checkpoint.container.name"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SECONDS = 60


class PushRefusedError(Exception):
    """The registry's words."""


@dataclass(frozen=True)
class Repository:
    """Where images go: `HOST[:PORT]/NAME`; loopback is spoken to without TLS."""

    reference: str
    authorization: str = ""  # the value of the header, empty for none

    def push(self, tag: str, archive: Path, container: str, digest: Callable[[], str]) -> str:
        """Store the archive under a tag; returns the image's name. Raises PushRefusedError.

        `digest` waits for the SHA-256 of the archive (hexadecimal), which somebody else reads too.
        """
        host, _, name = self.reference.partition("/")
        plain = host.partition(":")[0] in {"127.0.0.1", "localhost"}
        kind = http.client.HTTPConnection if plain else http.client.HTTPSConnection
        connection = kind(host, timeout=SECONDS)
        try:
            push = _Push(connection, name, self.authorization)
            layers = [push.layer(archive, digest)]
            if corrected := push.base_named_here(archive, host):
                layers.append(push.document(corrected, LAYER))
            rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
            machine = platform.machine()
            image = {
                "architecture": ARCHITECTURES.get(machine, machine),
                "os": "linux",
                "config": {},
                "rootfs": rootfs,
            }
            manifest = {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": push.document(json.dumps(image).encode(), CONFIG),
                "layers": layers,
                "annotations": {CONTAINER: container},
            }
            push.manifest(tag, json.dumps(manifest).encode())
        except (OSError, http.client.HTTPException) as error:
            raise PushRefusedError(f"{host}: {error}") from error
        finally:
            connection.close()
        return f"{self.reference}:{tag}"


class _Push:
    """One image on its way."""

    def __init__(self, connection: http.client.HTTPConnection, name: str, auth: str) -> None:
        self._connection = connection
        self._name = name
        self._headers = {"Authorization": auth} if auth else {}

    def layer(self, archive: Path, digest: Callable[[], str]) -> dict[str, Any]:
        """Sent before its digest is known, which names it at the end."""
        size = archive.stat().st_size
        where = _target(self._open())
        with archive.open("rb") as file:
            _, where = self._ask("PATCH", where, file, {"Content-Length": str(size)})
        named = f"sha256:{digest()}"
        self._ask("PUT", _target(where, named), None, {"Content-Length": "0"})
        return {"mediaType": LAYER, "digest": named, "size": size}

    def document(self, data: bytes, kind: str) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        if where := self._begin(digest):
            self._ask("PUT", where, data, {})
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    def base_named_here(self, archive: Path, host: str) -> bytes | None:
        """A layer whose `config.dump` has the base image at this host; None if it is not here."""
        with tarfile.open(archive) as tar:
            file = tar.extractfile("config.dump")
            described: dict[str, Any] = json.load(file) if file else {}
        registry, _, rest = described.get("rootfsImageRef", "").partition("/")
        name, _, digest = rest.partition("@")
        if registry == host or not digest:
            return None
        path = f"/v2/{name}/manifests/{digest}"
        status, _ = self._ask("HEAD", path, None, {"Accept": MANIFEST}, accepted=(200, 403, 404))
        if status != http.HTTPStatus.OK:
            return None
        data = json.dumps(described | {"rootfsImageRef": f"{host}/{rest}"}).encode()
        entry, layer = tarfile.TarInfo("config.dump"), io.BytesIO()
        entry.size, entry.mode = len(data), 0o600
        with tarfile.open(fileobj=layer, mode="w") as tar:
            tar.addfile(entry, io.BytesIO(data))
        return layer.getvalue()

    def manifest(self, tag: str, data: bytes) -> None:
        path = f"/v2/{self._name}/manifests/{tag}"
        self._ask("PUT", path, data, {"Content-Type": MANIFEST})

    def _begin(self, digest: str) -> str | None:
        """Where to put a blob; None if it is there already."""
        blob = f"/v2/{self._name}/blobs/{digest}"
        status, _ = self._ask("HEAD", blob, None, {}, accepted=(200, 404))
        if status == http.HTTPStatus.OK:
            return None
        return _target(self._open(), digest)

    def _open(self) -> str:
        """Where a new upload goes."""
        path = f"/v2/{self._name}/blobs/uploads/"
        return self._ask("POST", path, None, {"Content-Length": "0"})[1]

    def _ask(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str],
        accepted: tuple[int, ...] = (200, 201, 202),
    ) -> tuple[int, str]:
        """Status and `Location` of the answer."""
        octets = {"Content-Type": "application/octet-stream"} if body is not None else {}
        self._connection.request(
            method, path, body=body, headers={**octets, **self._headers, **headers}
        )
        answer = self._connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status not in accepted:
            raise PushRefusedError(f"{method} {path}: HTTP {answer.status} {text[:300]}".rstrip())
        return answer.status, answer.headers.get("Location", "")


def _target(location: str, digest: str = "") -> str:
    """Path and query of an address, with a digest that ends an upload."""
    parts = urlsplit(location)
    query = "&".join(filter(None, (parts.query, digest and f"digest={digest}")))
    return f"{parts.path}?{query}" if query else parts.path
