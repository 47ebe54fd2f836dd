"""The Pod Security Standards of Kubernetes 1.36: what they refuse, and defaults that satisfy them.

Source: k8s.io/pod-security-admission v0.36, package policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.document import Flaw
from sluice.core.config.tenants import PodSecurity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BASELINE_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_SAFE_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_SELINUX_TYPES: Final = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
_RESTRICTED_VOLUMES: Final = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every container of a pod of any kind, with its path inside the pod."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for place, container in enumerate(pod.get(kind) or []):
            yield f"{kind}[{place}]", container


def harden(pod: dict[str, Any], level: PodSecurity, *, run_as_user: int = 0) -> None:
    """Adds, in place, what the standard asks for and the pod leaves unsaid; weakens nothing.

    `run_as_user` is a user to run as where neither pod nor container says; 0 leaves it to the
    image, which must then name a user other than root under `restricted`.
    """
    if level is not PodSecurity.RESTRICTED:
        return
    security = pod.setdefault("securityContext", {})
    security.setdefault("runAsNonRoot", True)
    if run_as_user:
        security.setdefault("runAsUser", run_as_user)
    security.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    for _, container in containers(pod):
        own = container.setdefault("securityContext", {})
        own.setdefault("allowPrivilegeEscalation", False)
        own.setdefault("capabilities", {}).setdefault("drop", ["ALL"])


def violations(pod: Mapping[str, Any], level: PodSecurity, path: str) -> list[Flaw]:
    """What a pod with well-shaped fields does that its namespace's standard refuses."""
    found: list[Flaw] = []
    if level is not PodSecurity.PRIVILEGED:
        found += [_flaw(path, *each, level) for each in _baseline(pod)]
    if level is PodSecurity.RESTRICTED:
        found += [_flaw(path, *each, level) for each in _restricted(pod)]
    return found


def _flaw(path: str, field: str, message: str, level: PodSecurity) -> Flaw:
    where = f"the Pod Security Standard {level.value!r} of the namespace"
    return Flaw("", f"{path}.{field}", f"{message} ({where})")


def _baseline(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field, "must not be true; remove it"
    for place, volume in enumerate(pod.get("volumes") or []):
        if "hostPath" in volume:
            yield f"volumes[{place}].hostPath", "folders of the node may not be mounted; remove it"
    security = pod.get("securityContext") or {}
    for place, sysctl in enumerate(security.get("sysctls") or []):
        if sysctl.get("name") not in _SAFE_SYSCTLS:
            yield f"securityContext.sysctls[{place}].name", "is not a safe sysctl; remove it"
    yield from _confinement("securityContext", security)
    for field, container in containers(pod):
        own = container.get("securityContext") or {}
        yield from _confinement(f"{field}.securityContext", own)
        yield from _privileges(f"{field}.securityContext", own)
        for place, port in enumerate(container.get("ports") or []):
            if port.get("hostPort"):
                yield f"{field}.ports[{place}].hostPort", "must be 0; remove it"
        yield from _hosts(field, container)


def _privileges(at: str, security: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Baseline rules of a container alone."""
    if security.get("privileged"):
        yield f"{at}.privileged", "must not be true; remove it"
    if security.get("procMount", "Default") != "Default":
        yield f"{at}.procMount", "must be Default; remove it"
    for place, capability in enumerate((security.get("capabilities") or {}).get("add") or []):
        if capability not in _BASELINE_CAPABILITIES:
            yield f"{at}.capabilities.add[{place}]", f"{capability} may not be added; remove it"


def _confinement(at: str, security: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Baseline rules that pods and containers share."""
    for profile in ("appArmorProfile", "seccompProfile"):
        kind = (security.get(profile) or {}).get("type")
        if kind not in {None, "RuntimeDefault", "Localhost"}:
            yield f"{at}.{profile}.type", "must be RuntimeDefault or Localhost"
    selinux = security.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in _SELINUX_TYPES:
        yield f"{at}.seLinuxOptions.type", "is not a container's type; remove it"
    for field in ("user", "role"):
        if selinux.get(field):
            yield f"{at}.seLinuxOptions.{field}", "may not be set; remove it"


def _hosts(field: str, container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    lifecycle = container.get("lifecycle") or {}
    handlers = [(f"{field}.{name}", container.get(name) or {}) for name in _PROBES]
    handlers += [
        (f"{field}.lifecycle.{name}", lifecycle.get(name) or {})
        for name in ("postStart", "preStop")
    ]
    for at, handler in handlers:
        for kind in ("httpGet", "tcpSocket"):
            if (handler.get(kind) or {}).get("host"):
                yield f"{at}.{kind}.host", "may not name another host; remove it"


def _restricted(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for place, volume in enumerate(pod.get("volumes") or []):
        for kind in volume.keys() - {"name", "hostPath"} - _RESTRICTED_VOLUMES:
            yield f"volumes[{place}].{kind}", "this kind of volume is not allowed; remove it"
    security = pod.get("securityContext") or {}
    # Kubernetes relaxes this for `hostUsers: false`. Clusters up to 1.32 drop that field, and then
    # uid 0 in the container is uid 0 of the node.
    yield from _root("securityContext", security)
    for field, container in containers(pod):
        own = container.get("securityContext") or {}
        at = f"{field}.securityContext"
        yield from _root(at, own)
        if "runAsNonRoot" not in own and "runAsNonRoot" not in security:
            yield f"{at}.runAsNonRoot", "must be true"
        if not (own.get("seccompProfile") or security.get("seccompProfile") or {}).get("type"):
            yield f"{at}.seccompProfile", "must have the type RuntimeDefault or Localhost"
        yield from _escalation(at, own)


def _escalation(at: str, security: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Restricted rules of a container alone."""
    if security.get("procMount", "Default") != "Default":
        yield f"{at}.procMount", "must be Default; remove it"
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{at}.allowPrivilegeEscalation", "must be false"
    capabilities = security.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []):
        yield f"{at}.capabilities.drop", "must include ALL"
    for place, capability in enumerate(capabilities.get("add") or []):
        if capability != "NET_BIND_SERVICE" and capability in _BASELINE_CAPABILITIES:
            yield f"{at}.capabilities.add[{place}]", "only NET_BIND_SERVICE may be added"


def _root(at: str, security: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if security.get("runAsNonRoot") is False:
        yield f"{at}.runAsNonRoot", "must not be false; remove it"
    if security.get("runAsUser") == 0:
        yield f"{at}.runAsUser", "must not be 0; name a user other than root"
