"""A pod's volumes as folders: `emptyDir`, `configMap`, `secret`, `downwardAPI`.

They are filled once, at the pod's start; later changes of a ConfigMap or annotation do not arrive.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.node.api import KubernetesApi
from local.node.environment import ConfigMissingError, Sources, field, resource

_RESOURCES = {"ConfigMap": "configmaps", "Secret": "secrets"}


def fetch_sources(api: KubernetesApi, namespace: str, needed: set[tuple[str, str]]) -> Sources:
    """The named ConfigMaps and Secrets as text; binary data only by `fetch_files`."""
    return {
        (kind, name): None
        if (files := fetch_files(api, namespace, kind, name)) is None
        else {key: data.decode(errors="replace") for key, data in files.items()}
        for kind, name in needed
    }


def fetch_files(
    api: KubernetesApi, namespace: str, kind: str, name: str
) -> Mapping[str, bytes] | None:
    found = api.find(f"/api/v1/namespaces/{namespace}/{_RESOURCES[kind]}/{name}")
    if found is None:
        return None
    secret = kind == "Secret"
    encoded: dict[str, str] = found.get("data" if secret else "binaryData") or {}
    plain: dict[str, str] = {} if secret else found.get("data") or {}
    return {key: value.encode() for key, value in plain.items()} | {
        key: base64.b64decode(value) for key, value in encoded.items()
    }


def fill(
    api: KubernetesApi,
    pod: dict[str, Any],
    volume: dict[str, Any],
    folder: Path,
    allocatable: Mapping[str, str],
) -> None:
    """Makes the folder of one volume. Raises ConfigMissingError while its source does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    if "configMap" in volume:
        _project(api, pod, "ConfigMap", volume["configMap"], folder)
    elif "secret" in volume:
        _project(api, pod, "Secret", volume["secret"], folder)
    elif "downwardAPI" in volume:
        mode = volume["downwardAPI"].get("defaultMode", 0o644)
        for item in volume["downwardAPI"].get("items", []):
            text = _downward(pod, item, allocatable)
            _write(folder, item["path"], text.encode(), item.get("mode", mode))


def _project(
    api: KubernetesApi,
    pod: dict[str, Any],
    kind: str,
    source: dict[str, Any],
    folder: Path,
) -> None:
    name = source["secretName" if kind == "Secret" else "name"]
    files = fetch_files(api, pod["metadata"]["namespace"], kind, name)
    if files is None:
        if source.get("optional"):
            return
        raise ConfigMissingError(f"{kind} {name!r} not found")
    mode = source.get("defaultMode", 0o644)
    items = source.get("items") or [{"key": key, "path": key} for key in files]
    for item in items:
        if item["key"] not in files:
            if source.get("optional"):
                continue
            raise ConfigMissingError(f"{kind} {name!r} has no key {item['key']!r}")
        _write(folder, item["path"], files[item["key"]], item.get("mode", mode))


def _downward(pod: dict[str, Any], item: dict[str, Any], allocatable: Mapping[str, str]) -> str:
    if "fieldRef" in item:
        return field(pod, item["fieldRef"]["fieldPath"])
    reference = item["resourceFieldRef"]
    containers = {one["name"]: one for one in pod["spec"]["containers"]}
    return resource(containers[reference["containerName"]], reference, allocatable)


def _write(folder: Path, path: str, data: bytes, mode: int) -> None:
    target = folder / path  # the API server refuses absolute paths and `..`
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_bytes(data)
    target.chmod(mode)
