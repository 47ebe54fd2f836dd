"""What an administrator applies in a cluster: rights of our groups, and guards of the tenants."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
_FILES = ("rbac.yaml", "admission-policy.yaml", "placeholders.yaml")


def cluster_manifest(namespaces: Iterable[str]) -> list[dict[str, Any]]:
    """Return the objects of the files for these tenant namespaces.

    A RoleBinding without a namespace is repeated for each; everything else is as written.
    """
    repeated = sorted(namespaces)
    return [
        each
        for name in _FILES
        for document in yaml.safe_load_all((_FOLDER / name).read_text(encoding="utf-8"))
        for each in _in_namespaces(document, repeated)
    ]


def _in_namespaces(document: dict[str, Any], namespaces: Iterable[str]) -> list[dict[str, Any]]:
    metadata = document["metadata"]
    if document["kind"] != "RoleBinding" or "namespace" in metadata:
        return [document]
    return [
        document | {"metadata": metadata | {"namespace": namespace}} for namespace in namespaces
    ]
