"""What an administrator applies in a cluster: rights of our groups, and guards of the tenants."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
_FILES = ("rbac.yaml", "admission-policy.yaml")


def cluster_manifest(namespaces: Iterable[str]) -> list[dict[str, Any]]:
    """Return the objects of rbac.yaml and admission-policy.yaml for these tenant namespaces.

    A RoleBinding of rbac.yaml is repeated for each namespace; everything else is as written.
    """
    repeated = sorted(namespaces)
    return [
        each
        for name in _FILES
        for document in yaml.safe_load_all((_FOLDER / name).read_text(encoding="utf-8"))
        for each in _in_namespaces(document, repeated)
    ]


def _in_namespaces(document: dict[str, Any], namespaces: Iterable[str]) -> list[dict[str, Any]]:
    if document["kind"] != "RoleBinding":
        return [document]
    metadata = document["metadata"]
    return [
        document | {"metadata": metadata | {"namespace": namespace}} for namespace in namespaces
    ]
