"""Builds the real cluster from Go modules: etcd, Kubernetes with its kubelet, Karpenter for AWS."""

from pathlib import Path

KUBERNETES, ETCD, KARPENTER = "v1.36.3", "v3.6.8", "v1.14.0"

VERSIONS = {
    "etcd": ETCD,
    "kube-apiserver": KUBERNETES,
    "kube-controller-manager": KUBERNETES,
    "kube-scheduler": KUBERNETES,
    "kubelet": KUBERNETES,
    "karpenter": KARPENTER,
}


def binary(cache: Path, name: str) -> Path:
    return cache / "bin" / f"{name}-{VERSIONS[name]}"


def karpenter_crds(cache: Path) -> Path:
    return cache / f"crds-karpenter-{KARPENTER}"
