"""Applies manifests to the local API server by server-side apply, over plain HTTPS.

The Kubernetes client takes over a second to import and discovers every API first; `up` is waited
for by a person.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from local.errors import ApplyError

Json = dict[str, Any]
MANAGER = "sluice-local"
# In C where there is one: Python would take seconds for a definition of a megabyte.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CONDITION_SECONDS = 60.0
SETTLE_SECONDS = 10.0  # how long a fresh custom resource definition may take to be served


class ApiServer:
    """The few calls that a launcher makes. `kubeconfig` is one that we wrote ourselves."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self.url, self.token = cluster["server"], document["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=authority)
        self.resources: dict[tuple[str, str], Json] = {}

    def call(
        self, method: str, path: str, body: bytes | None = None, content_type: str = ""
    ) -> Json:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
            document: Json = json.loads(answer.read())
            return document

    def resource(self, api_version: str, kind: str) -> Json:
        """The API server's own description of a kind: its plural name, and if namespaced."""
        if (api_version, kind) not in self.resources:
            root = "api" if api_version == "v1" else "apis"
            for one in self.call("GET", f"/{root}/{api_version}")["resources"]:
                if "/" not in one["name"]:
                    self.resources[api_version, one["kind"]] = one
        return self.resources[api_version, kind]

    def path(self, manifest: Json) -> str:
        version, metadata = manifest["apiVersion"], manifest["metadata"]
        resource = self.resource(version, manifest["kind"])
        namespace = metadata.get("namespace", "default")
        inside = f"namespaces/{namespace}/" if resource["namespaced"] else ""
        root = "api" if version == "v1" else "apis"
        return f"/{root}/{version}/{inside}{resource['name']}/{metadata['name']}"

    def apply(self, manifest: Json) -> Json:
        """Server-side apply; waits for a kind that is about to be served.

        Raises ApplyError with the API server's message.
        """
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                path = f"{self.path(manifest)}?fieldManager={MANAGER}&force=true"
                body = json.dumps(manifest).encode()
                return self.call("PATCH", path, body, "application/apply-patch+yaml")
            except (urllib.error.HTTPError, KeyError) as error:
                unserved = isinstance(error, KeyError) or error.code == 404  # noqa: PLR2004
                if unserved and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                reason = error.read().decode() if not isinstance(error, KeyError) else "unknown"
                raise ApplyError(f"{name}: {reason}") from error

    def await_condition(self, manifest: Json, condition: str) -> None:
        """Wait until the object has the condition. Raises ApplyError when that takes too long."""
        deadline = time.monotonic() + CONDITION_SECONDS
        while time.monotonic() < deadline:
            found = self.call("GET", self.path(manifest)).get("status", {}).get("conditions", [])
            if any(one["type"] == condition and one["status"] == "True" for one in found):
                return
            time.sleep(0.1)
        raise ApplyError(f"{manifest['kind']} {manifest['metadata']['name']}: not {condition}")

    def await_served(self, definition: Json) -> None:
        """Wait until clients can find the kind that a definition brings. Raises ApplyError.

        Controllers look once, when they start; Karpenter works without its indexes, that is not at
        all, if its kinds are not there then.
        """
        spec = definition["spec"]
        kind, deadline = spec["names"]["kind"], time.monotonic() + CONDITION_SECONDS
        for version in (one["name"] for one in spec["versions"] if one["served"]):
            while True:
                try:
                    self.resource(f"{spec['group']}/{version}", kind)
                    break
                except (urllib.error.HTTPError, KeyError) as error:
                    if time.monotonic() > deadline:
                        raise ApplyError(f"the API server does not serve {kind}") from error
                    time.sleep(0.1)


def read_manifests(path: Path, values: dict[str, str]) -> list[Json]:
    """The documents of one YAML file, or of all in a folder, with `${NAME}` replaced."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    documents: list[Json] = []
    for file in files:
        text = file.read_text()
        for name, value in values.items():
            text = text.replace(f"${{{name}}}", value)
        documents += [document for document in yaml.load_all(text, LOADER) if document]
    return documents


def apply_all(server: ApiServer, manifests: Iterable[Json]) -> None:
    """Apply in order, and wait until the kinds among them are served."""
    manifests = list(manifests)
    for manifest in manifests:
        server.apply(manifest)
    for manifest in manifests:
        if manifest["kind"] == "CustomResourceDefinition":
            server.await_served(manifest)
