"""What a manifest may ask of a `process` node; everything else is refused by name.

Accepted without effect, because a process of the same user has no such thing: images and pull
policy, resource limits, ports, service accounts (no token is mounted), and the restricting parts
of a security context (runAsUser, runAsNonRoot, seccompProfile, dropped capabilities …).
"""

from typing import Any

REASON = "UnsupportedByProcessNode"
VOLUMES = {"name", "emptyDir", "configMap", "secret", "downwardAPI", "persistentVolumeClaim"}
POD_FIELDS = ("ephemeralContainers", "resourceClaims", "runtimeClassName", "hostAliases")
CONTAINER_FIELDS = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "stdin",
    "tty",
    "volumeDevices",
)


def refusals(pod: dict[str, Any]) -> list[str]:
    """Field paths that the process node cannot honour, each with what is wrong; empty if none."""
    spec = pod["spec"]
    found = [f"spec.{name}" for name in POD_FIELDS if spec.get(name)]
    found += [f"spec.{name}" for name in ("hostPID", "hostIPC") if spec.get(name)]
    if spec.get("os", {}).get("name", "linux") != "linux":
        found.append("spec.os.name")
    for volume in spec.get("volumes", []):
        found += [f"spec.volumes[{volume['name']}].{key}" for key in volume if key not in VOLUMES]
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, []):
            where = f"spec.{kind}[{container['name']}]"
            found += [f"{where}.{reason}" for reason in _container_refusals(container)]
            if kind == "initContainers" and container.get("restartPolicy"):
                found.append(f"{where}.restartPolicy (side-cars)")
    return found


def _container_refusals(container: dict[str, Any]) -> list[str]:
    found = [name for name in CONTAINER_FIELDS if container.get(name)]
    if not container.get("command"):
        found.append("command (missing: no image is pulled, so there is no entry point)")
    security = container.get("securityContext", {})
    if security.get("privileged"):
        found.append("securityContext.privileged")
    if security.get("capabilities", {}).get("add"):
        found.append("securityContext.capabilities.add")
    lifecycle = container.get("lifecycle", {})
    if "postStart" in lifecycle:
        found.append("lifecycle.postStart")
    found += [
        f"lifecycle.preStop.{action}"
        for action in lifecycle.get("preStop", {})
        if action not in ("exec", "sleep")
    ]
    found += [
        f"volumeMounts[{mount['mountPath']}].subPathExpr"
        for mount in container.get("volumeMounts", [])
        if mount.get("subPathExpr")
    ]
    return found


def refusal_message(found: list[str]) -> str:
    return (
        f"The process node does not support {', '.join(found)}. "
        "Change the manifest, or run it on `kubelet` nodes (sluice local up --nodes kubelet)."
    )
