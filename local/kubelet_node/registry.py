"""Images in a folder, and the registry on loopback that nodes pull from and push to.

The part of the OCI distribution interface that containerd and the node agent use: manifests and
blobs by GET and HEAD, uploads in one piece or several, manifests by PUT. Layers stay uncompressed:
they never leave the machine, and packing is then one copy.

As a mirror of all registries (requests with `ns`) it knows one image more: every name that ends in
`python`, with any tag, is Debian's Python. For other names it has nothing, so that the nodes ask
the registry that the image names.
"""

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from local.kubelet_node.debian import architecture

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
PYTHON = "python:debian"
NAME, REFERENCE = r"[a-z0-9][a-z0-9._/-]*", r"\w[\w.:-]*"
STORED = re.compile(f"/v2/(?P<name>{NAME})/(?P<kind>manifests|blobs)/(?P<reference>{REFERENCE})")
UPLOADS = re.compile(f"/v2/(?P<name>{NAME})/blobs/uploads/(?P<upload>[0-9a-f]*)")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
CHUNK = 1 << 20


class Images:
    """Blobs by digest, and tags that name manifests."""

    def __init__(self, folder: Path) -> None:
        self.blobs, self.tags, self.drafts = folder / "blobs", folder / "tags", folder / "drafts"
        for path in (self.blobs, self.tags, self.drafts):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def add(self, name: str, layers: Iterable[Path], config: Mapping[str, Any]) -> str:
        """Store an image as NAME:TAG; returns the digest of its manifest."""
        described = [self._link(layer) for layer in layers]
        rootfs = {"type": "layers", "diff_ids": [one["digest"] for one in described]}
        image = {"architecture": architecture(), "os": "linux", "config": config, "rootfs": rootfs}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._write(image, CONFIG),
            "layers": described,
        }
        repository, _, tag = name.rpartition(":")
        return self.put_manifest(repository, tag, json.dumps(manifest).encode())

    def put_manifest(self, repository: str, reference: str, document: bytes) -> str:
        digest = self.store(document)
        if not DIGEST.fullmatch(reference):
            tag = self.tags / repository / reference
            tag.parent.mkdir(parents=True, exist_ok=True)
            tag.write_text(digest)
        return digest

    def find(self, repository: str, kind: str, reference: str, *, mirrored: bool) -> Path | None:
        digest = reference
        if kind == "manifests" and not DIGEST.fullmatch(reference):
            if mirrored and repository.rpartition("/")[2] == "python":
                repository, _, reference = PYTHON.partition(":")
            tag = self.tags / repository / reference
            digest = tag.read_text() if tag.is_file() else ""
        if not DIGEST.fullmatch(digest):
            return None
        blob = self.blob(digest)
        return blob if blob.is_file() else None

    def remove(self, repository: str, tag: str) -> bool:
        """Take a tag away, and the blobs of its image that no other tag's image has."""
        file = self.tags / repository / tag
        if not file.is_file():
            return False
        unused = self._blobs_of(file)
        file.unlink()
        for other in self.tags.rglob("*"):
            if other.is_file():
                unused -= self._blobs_of(other)
        for digest in unused:
            self.blob(digest).unlink(missing_ok=True)
        return True

    def _blobs_of(self, tag: Path) -> set[str]:
        """The digests of a tag's manifest and of all that it names."""
        digest = tag.read_text()
        manifest = json.loads(self.blob(digest).read_bytes())
        named = [manifest["config"], *manifest["layers"]]
        return {digest, *(each["digest"] for each in named)}

    def blob(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")

    def store(self, data: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        draft = self.drafts / uuid.uuid4().hex
        draft.write_bytes(data)
        draft.rename(self.blob(digest))
        return digest

    def _link(self, layer: Path) -> dict[str, Any]:
        """A layer of the cache as a blob, without a copy where the file system allows it."""
        with layer.open("rb") as file:
            digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        blob = self.blob(digest)
        if not blob.exists():
            try:
                blob.hardlink_to(layer)
            except OSError:
                shutil.copyfile(layer, blob)
        return {"mediaType": LAYER, "digest": digest, "size": layer.stat().st_size}

    def _write(self, document: Mapping[str, Any], kind: str) -> dict[str, Any]:
        data = json.dumps(document).encode()
        return {"mediaType": kind, "digest": self.store(data), "size": len(data)}


class Registry(BaseHTTPRequestHandler):
    """One connection to the registry."""

    protocol_version = "HTTP/1.1"
    images: Images

    def do_GET(self) -> None:
        if found := self._answer():
            with found.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, CHUNK)

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        """Begin an upload; a digest with it makes it the whole upload."""
        address = urlsplit(self.path)
        request = UPLOADS.fullmatch(address.path)
        if not request:
            return self._refuse(404)
        self._receive(request["name"], uuid.uuid4().hex, parse_qs(address.query).get("digest"))
        return None

    def do_PATCH(self) -> None:
        request = UPLOADS.fullmatch(urlsplit(self.path).path)
        if not request or not (self.images.drafts / request["upload"]).is_file():
            return self._refuse(404)
        self._receive(request["name"], request["upload"], None)
        return None

    def do_PUT(self) -> None:
        """End an upload, or store a manifest."""
        address = urlsplit(self.path)
        if request := UPLOADS.fullmatch(address.path):
            if not (self.images.drafts / request["upload"]).is_file():
                return self._refuse(404)
            digest = parse_qs(address.query).get("digest")
            self._receive(request["name"], request["upload"], digest)
            return None
        request = STORED.fullmatch(address.path)
        if not request or request["kind"] != "manifests":
            return self._refuse(404)
        document = self.rfile.read(self._length())
        digest_of = self.images.put_manifest(request["name"], request["reference"], document)
        self._head(201, {"Docker-Content-Digest": digest_of, "Location": address.path})
        return None

    def do_DELETE(self) -> None:
        request = STORED.fullmatch(urlsplit(self.path).path)
        if not request or request["kind"] != "manifests":
            return self._refuse(404)
        found = self.images.remove(request["name"], request["reference"])
        return self._refuse(202 if found else 404)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Nothing: what is pulled is in the nodes' own logs."""

    def _receive(self, name: str, upload: str, digest: list[str] | None) -> None:
        """Append the body to a draft; with a digest, check it and make the draft a blob."""
        draft = self.images.drafts / upload
        with draft.open("ab") as file:
            _copy(self.rfile, file, self._length())
        if digest is None:
            return self._head(202, {"Location": f"/v2/{name}/blobs/uploads/{upload}"})
        with draft.open("rb") as file:
            actual = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        if digest != [actual]:
            draft.unlink()
            return self._refuse(400)
        draft.rename(self.images.blob(actual))
        location = f"/v2/{name}/blobs/{actual}"
        return self._head(201, {"Docker-Content-Digest": actual, "Location": location})

    def _answer(self) -> Path | None:
        """Send the headers; the file, if there is one, is the body."""
        address = urlsplit(self.path)
        request = STORED.fullmatch(address.path)
        found = None
        if request:
            mirrored = "ns" in parse_qs(address.query)
            found = self.images.find(*request.groups(), mirrored=mirrored)
        if request is None or found is None:
            self._refuse(200 if address.path in {"/v2", "/v2/"} else 404)
            return None
        self.send_response(200)
        manifest = request["kind"] == "manifests"
        self.send_header("Content-Type", MANIFEST if manifest else "application/octet-stream")
        self.send_header("Content-Length", str(found.stat().st_size))
        self.send_header("Docker-Content-Digest", f"sha256:{found.name}")
        self.end_headers()
        return found

    def _length(self) -> int:
        return int(self.headers.get("Content-Length") or 0)

    def _refuse(self, status: int) -> None:
        self._head(status, {})

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _copy(source: BufferedIOBase, target: BinaryIO, length: int) -> None:
    while length:
        data = source.read(min(CHUNK, length))
        if not data:
            raise ConnectionError("the client left in the middle of an upload")
        target.write(data)
        length -= len(data)


def serve(images: Images, port: int) -> ThreadingHTTPServer:
    """A registry of these images on 127.0.0.1; the caller runs `serve_forever`."""
    handler = type("Handler", (Registry,), {"images": images})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server
