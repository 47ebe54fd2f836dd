"""The Pod Security Standards: what each refuses, and that hardening satisfies the strictest."""

import copy

import pytest
from sluice.core.config.tenants import PodSecurity
from sluice.core.intake.pod_security import harden, violations

from tests.unit.submission.builders import a_container, a_pod

# What each standard refuses first, as a pod and the field that is reported.
BASELINE = [
    ({"hostNetwork": True}, "hostNetwork"),
    ({"hostPID": True}, "hostPID"),
    ({"hostIPC": True}, "hostIPC"),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[0].hostPath"),
    (
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        "securityContext.sysctls[0].name",
    ),
    (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "securityContext.seccompProfile.type",
    ),
    (
        {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
        "securityContext.appArmorProfile.type",
    ),
    (
        {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        "securityContext.seLinuxOptions.type",
    ),
    ({"securityContext": {"seLinuxOptions": {"user": "u"}}}, "securityContext.seLinuxOptions.user"),
]
BASELINE_CONTAINER = [
    ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
    ({"securityContext": {"procMount": "Unmasked"}}, "securityContext.procMount"),
    (
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        "securityContext.capabilities.add[0]",
    ),
    ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "ports[0].hostPort"),
    (
        {"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}},
        "livenessProbe.httpGet.host",
    ),
    (
        {"lifecycle": {"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}},
        "lifecycle.preStop.tcpSocket.host",
    ),
]
RESTRICTED_CONTAINER = [
    ({"securityContext": {"runAsNonRoot": False}}, "securityContext.runAsNonRoot"),
    ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser"),
    (
        {"securityContext": {"allowPrivilegeEscalation": True}},
        "securityContext.allowPrivilegeEscalation",
    ),
    (
        {"securityContext": {"capabilities": {"drop": ["KILL"]}}},
        "securityContext.capabilities.drop",
    ),
    (
        {"securityContext": {"capabilities": {"add": ["CHOWN"]}}},
        "securityContext.capabilities.add[0]",
    ),
]
PODS = [(fields, path) for fields, path in BASELINE]
PODS += [
    ({kind: [a_container(name="c") | fields]}, f"{kind}[0].{path}")
    for fields, path in BASELINE_CONTAINER
    for kind in ("containers", "initContainers", "ephemeralContainers")
]
STRICT_PODS = [
    ({kind: [a_container(name="c") | fields]}, f"{kind}[0].{path}")
    for fields, path in RESTRICTED_CONTAINER
    for kind in ("containers", "initContainers", "ephemeralContainers")
]
STRICT_PODS += [
    ({"volumes": [{"name": "v", "nfs": {"server": "x", "path": "/"}}]}, "volumes[0].nfs")
]


def refused(pod: dict, level: PodSecurity) -> set[str]:
    return {flaw.field for flaw in violations(pod, level, "pod")}


@pytest.mark.parametrize(("fields", "path"), PODS)
def test_baseline_and_restricted_refuse(fields, path):
    pod = a_pod(**copy.deepcopy(fields))
    harden(pod, PodSecurity.RESTRICTED)

    assert refused(pod, PodSecurity.BASELINE) == {f"pod.{path}"}
    assert f"pod.{path}" in refused(pod, PodSecurity.RESTRICTED)
    assert refused(pod, PodSecurity.PRIVILEGED) == set()


@pytest.mark.parametrize(("fields", "path"), STRICT_PODS)
def test_only_restricted_refuses(fields, path):
    pod = a_pod(**copy.deepcopy(fields))
    harden(pod, PodSecurity.RESTRICTED)

    assert refused(pod, PodSecurity.RESTRICTED) == {f"pod.{path}"}
    assert refused(pod, PodSecurity.BASELINE) == set()


def test_a_plain_pod_satisfies_restricted_only_once_it_is_hardened():
    pod = a_pod(initContainers=[a_container(name="init")])

    assert len(refused(pod, PodSecurity.RESTRICTED)) == 8
    harden(pod, PodSecurity.RESTRICTED)
    assert refused(pod, PodSecurity.RESTRICTED) == set()


def test_hardening_keeps_what_the_submitter_chose():
    chosen = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        "runAsUser": 1234,
        "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
    }
    pod = a_pod(containers=[a_container(securityContext=copy.deepcopy(chosen))])

    harden(pod, PodSecurity.RESTRICTED, run_as_user=1000)

    assert pod["containers"][0]["securityContext"] == chosen
    assert refused(pod, PodSecurity.RESTRICTED) == set()


@pytest.mark.parametrize("level", [PodSecurity.BASELINE, PodSecurity.PRIVILEGED])
def test_wider_standards_leave_pods_alone(level):
    pod = a_pod()

    harden(pod, level, run_as_user=1000)

    assert pod == a_pod()


def test_q2_a_pod_with_users_of_its_own_may_not_be_root_inside():
    """Finding Q2: clusters up to 1.32 drop `hostUsers`, and then uid 0 is that of the node."""
    pod = a_pod(hostUsers=False, securityContext={"runAsUser": 0})

    harden(pod, PodSecurity.RESTRICTED)

    assert refused(pod, PodSecurity.RESTRICTED) != set()
