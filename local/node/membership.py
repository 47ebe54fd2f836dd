"""How an instance becomes a Kubernetes node and stays one: Node object, Ready condition, Lease."""

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from local.node.api import MERGE, ApiError, KubernetesApi
from local.node.instances import Instance, Machine
from local.node.state import timestamp

LEASE_SECONDS = 40
RENEW_SECONDS = 10
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OURS = "sluice.dev/node=process"
VERSION = "v1.36.3"


@dataclass(frozen=True)
class Registration:
    """What a node announces of itself."""

    instance: Instance
    machine: Machine
    kubelet_port: int
    checkpoint: str  # "criu-4.2.1", or "unavailable"
    checkpoint_reason: str  # empty when available
    isolation_reason: str  # why pods are not isolated from the machine; empty when they are


def node_object(registration: Registration) -> dict[str, Any]:
    """The Node as a kubelet under Karpenter registers it: tainted until Karpenter adopts it."""
    instance, machine = registration.instance, registration.machine
    labels = {
        "kubernetes.io/hostname": instance.node_name,
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance.type,
        "topology.kubernetes.io/region": instance.zone[:-1],
        "topology.kubernetes.io/zone": instance.zone,
        "topology.k8s.aws/zone-id": instance.zone,
        "sluice.dev/node": "process",
    }
    taint = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": instance.node_name, "labels": labels},
        "spec": {"providerID": instance.provider_id, "taints": [taint]},
    }


def node_status(registration: Registration) -> dict[str, Any]:
    """Patch of metadata and status; conditions merge by type."""
    now = timestamp()
    healthy = (
        ("Ready", "True", "KubeletReady"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
    )
    name = registration.instance.node_name
    return {
        "status": {
            "capacity": registration.machine.capacity,
            "allocatable": registration.machine.allocatable,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, status, reason in healthy
            ],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": registration.kubelet_port}},
            "nodeInfo": {
                "architecture": registration.machine.architecture,
                "bootID": "",
                "containerRuntimeVersion": "process://1",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": VERSION,
                "machineID": registration.instance.id,
                "operatingSystem": "linux",
                "osImage": "process",
                "systemUUID": registration.instance.id,
            },
        },
    }


def checkpoint_capability(registration: Registration) -> dict[str, Any]:
    """Patch that tells drivers whether this node can save processes, and why not."""
    key = "sluice.dev/checkpoint"
    able = not registration.checkpoint_reason
    return {
        "metadata": {
            "labels": {
                key: registration.checkpoint,
                f"{key}-connections": "close" if able else None,
            },
            "annotations": {
                f"{key}-reason": registration.checkpoint_reason or None,
                "sluice.dev/isolation-reason": registration.isolation_reason or None,
            },
        }
    }


def join(api: KubernetesApi, registration: Registration) -> str:
    """Creates or adopts the Node and makes it Ready; returns its UID."""
    path = f"/api/v1/nodes/{registration.instance.node_name}"
    node = api.find(path)
    if node and node["spec"].get("providerID") != registration.instance.provider_id:
        api.delete(path, uid=node["metadata"]["uid"])  # an earlier machine of the same address
        raise ApiError(409, f"{registration.instance.node_name} still belongs to another instance")
    if node is None:
        node = api.create("/api/v1/nodes", node_object(registration))
    uid: str = node["metadata"]["uid"]
    renew(api, registration.instance.node_name, uid)
    api.patch(path, checkpoint_capability(registration))
    api.patch(f"{path}/status", node_status(registration))
    return uid


def renew(api: KubernetesApi, name: str, uid: str) -> None:
    """Renews the node's Lease, creating it if need be."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    lease = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
    try:
        api.patch(f"{LEASES}/{name}", lease, kind=MERGE)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        with contextlib.suppress(ApiError):  # the next renewal tries again
            api.create(LEASES, lease)


def remove_if_dead(api: KubernetesApi, name: str, provider_id: str) -> bool:
    """The cloud controller's part: a node that is not Ready and has no instance is deleted.

    Returns True when there is nothing left to remove.
    """
    node = api.find(f"/api/v1/nodes/{name}")
    if node is None or node["spec"].get("providerID") != provider_id:
        return True
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
    if conditions.get("Ready") == "True":
        return False
    if "deletionTimestamp" not in node["metadata"]:
        api.delete(f"/api/v1/nodes/{name}", uid=node["metadata"]["uid"])
    return True
