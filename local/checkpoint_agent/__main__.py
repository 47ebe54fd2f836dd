"""Saves pods of process nodes when Sluice orders it.

python -m local.checkpoint_agent --kubeconfig FILE --label sluice.dev/node=process --s3 URL
"""

from __future__ import annotations

import argparse
import base64
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import yaml
from sluice.adapters.kubernetes_cluster import KubernetesCluster

from local.checkpoint_agent.kubelet import Kubelet
from local.checkpoint_agent.service import Agent


def credentials(path: Path) -> tuple[str, str, str]:
    """API server, its CA and the token of a kubeconfig's first cluster and user."""
    document = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return cluster["server"], ca, user["token"]


def labelled(label: str) -> Callable[[Mapping[str, Any]], bool]:
    name, _, value = label.partition("=")

    def serves(node: Mapping[str, Any]) -> bool:
        return bool((node["metadata"].get("labels") or {}).get(name) == value)

    return serves


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--label", required=True, help="KEY=VALUE of the nodes to serve")
    parser.add_argument("--s3", required=True, help="address of the embedded AWS")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    server, ca, token = credentials(chosen.kubeconfig)
    Agent(
        KubernetesCluster(server, ca, lambda: token),
        Kubelet(lambda: token),
        boto3.client("s3", endpoint_url=chosen.s3),
        labelled(chosen.label),
    ).run()


if __name__ == "__main__":
    main()
