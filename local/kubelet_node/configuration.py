"""The files that make one node differ from another: kubelet, containerd, network, kernel."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.node.instances import Instance, Machine

# What the kubelet (first three) and the network plugin would set for the whole machine.
KERNEL_SETTINGS = {
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "vm.overcommit_memory": 1,
    "net.ipv4.ip_forward": 1,
}
CONTAINERD = """version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '127.0.0.1:{registry}/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  # Lowering a score needs CAP_SYS_RESOURCE, which a container or a micro-VM often lacks.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '/etc/containerd/certs.d'
"""
# Without a file of its own, containerd speaks TLS to every port but 80, on loopback too.
OUR_REGISTRY = 'server = "http://127.0.0.1:{registry}"\n'
# Any other registry: what ours has not, is asked for where the image's name says.
OTHER_REGISTRIES = """[host."http://127.0.0.1:{registry}"]
  capabilities = ["pull", "resolve"]
"""
# runc hands them to CRIU: a checkpoint closes open TCP connections instead of failing for them.
CRIU_OPTIONS = "tcp-close\nskip-in-flight\nfile-locks\nlink-remap\nghost-limit 1073741824\n"
UNREGISTERED = {"key": "karpenter.sh/unregistered", "value": "true", "effect": "NoExecute"}
SERVING = {
    "tlsCertFile": "/etc/kubelet/serving.crt",
    "tlsPrivateKeyFile": "/etc/kubelet/serving.key",
}
CPU_LISTS = ("online", "possible", "present")


@dataclass(frozen=True)
class Plan:
    """One node: the instance it is, and what was chosen for it on this machine."""

    instance: Instance
    machine: Machine
    kubeconfig: str  # the text of the file, certificates included
    client_ca: str | None  # whose clients are the API server; None: no logs and no exec
    port: int
    registry: int
    pod_range: str
    cgroup: str
    serving: tuple[str, str] | None  # its certificate and key; None: it signs one itself


def labels(plan: Plan) -> dict[str, str]:
    """Beyond those that every kubelet sets itself."""
    instance = plan.instance
    return {
        "node.kubernetes.io/instance-type": instance.type,
        "topology.kubernetes.io/region": instance.zone[:-1],
        "topology.kubernetes.io/zone": instance.zone,
        "topology.k8s.aws/zone-id": instance.zone,
        "sluice.dev/node": "kubelet",
    }


def kubelet(plan: Plan) -> dict[str, Any]:
    """KubeletConfiguration; reserves what Karpenter believes is reserved."""
    capacity, allocatable = plan.machine.capacity, plan.machine.allocatable
    millicores = int(capacity["cpu"]) * 1000 - int(allocatable["cpu"].removesuffix("m"))
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": plan.port,
        "healthzPort": 0,
        **(SERVING if plan.serving else {}),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubelet/client-ca.crt"} if plan.client_ca else {},
        },
        "authorization": {"mode": "Webhook"},
        "registerWithTaints": [UNREGISTERED],
        "maxPods": int(capacity["pods"]),
        "kubeReserved": {
            "cpu": f"{millicores}m",
            "memory": f"{mebibytes(capacity) - mebibytes(allocatable)}Mi",
        },
        # Memory and disk are the machine's: what others use must not evict pods or remove images.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.cgroup}",
        "failSwapOn": False,
        "oomScoreAdj": 0,  # the default of -999 needs CAP_SYS_RESOURCE
        "maxOpenFiles": 20000,
        "makeIPTablesUtilChains": False,  # they would be the machine's
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "5s",
    }


def mebibytes(resources: dict[str, str]) -> int:
    return int(resources["memory"].removesuffix("Mi"))


def pod_network(plan: Plan) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": plan.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipam": addresses}],
    }


def memory(plan: Plan) -> str:
    """/proc/meminfo of a machine of the instance's size."""
    size = mebibytes(plan.machine.capacity) * 1024
    amounts = {"MemTotal": size, "MemFree": size, "MemAvailable": size}
    rest = dict.fromkeys(("Buffers", "Cached", "SwapTotal", "SwapFree"), 0)
    return "".join(f"{name}: {amount} kB\n" for name, amount in (amounts | rest).items())


def files(plan: Plan) -> dict[str, str]:
    """Path below /etc to content."""
    registry = {"registry": plan.registry}
    found = {
        "containerd/config.toml": CONTAINERD.format(**registry),
        f"containerd/certs.d/127.0.0.1:{plan.registry}/hosts.toml": OUR_REGISTRY.format(**registry),
        "containerd/certs.d/_default/hosts.toml": OTHER_REGISTRIES.format(**registry),
        "cni/net.d/10-pods.conflist": json.dumps(pod_network(plan)),
        "kubelet/config.json": json.dumps(kubelet(plan), indent=2),
        "kubelet/kubeconfig": plan.kubeconfig,
        "kubelet/labels": ",".join(f"{key}={text}" for key, text in labels(plan).items()),
        "criu/runc.conf": CRIU_OPTIONS,
        "hosts": "127.0.0.1 localhost\n",
        "machine-id": plan.instance.id.removeprefix("i-").zfill(32)[-32:] + "\n",
        "size/meminfo": memory(plan),
    }
    found |= {f"kernel-settings/{key}": f"{text}\n" for key, text in KERNEL_SETTINGS.items()}
    if plan.client_ca:
        found["kubelet/client-ca.crt"] = plan.client_ca
    if plan.serving:
        found["kubelet/serving.crt"], found["kubelet/serving.key"] = plan.serving
    return found


def write(plan: Plan, root: Path) -> None:
    """Lay everything out below `root`, the upper layer over the shared file system.

    `etc/size` covers what the kubelet would count: a processor is a folder, memory is a line.
    """
    for name, content in files(plan).items():
        file = root / "etc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    for file in (root / "etc/kubelet").iterdir():
        file.chmod(0o600)
    processors = root / "etc/size/cpu"
    for number in range(int(plan.machine.capacity["cpu"])):
        (processors / f"cpu{number}").mkdir(parents=True, exist_ok=True)
    for name in CPU_LISTS:
        real = Path("/sys/devices/system/cpu", name)
        (processors / name).write_text(real.read_text())
    (root / "etc/size/numa").mkdir(exist_ok=True)
    for name in ("var/lib/containerd", "var/lib/kubelet", "usr/local/bin"):  # mount points
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "usr/local/bin/kubelet").touch()
