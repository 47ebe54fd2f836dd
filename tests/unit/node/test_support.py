"""What a process node refuses is named by its field path."""

from typing import Any

import pytest

from local.node.support import refusal_message, refusals


def a_pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "command": ["true"]} | (container or {})
    return {"spec": {"containers": [main], **spec}}


def test_an_ordinary_restricted_job_is_accepted() -> None:
    security = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {"limits": {"cpu": "2", "memory": "4Gi"}}
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {}}]

    pod = a_pod({"securityContext": security, "resources": limits}, volumes=volumes)

    assert refusals(pod) == []


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        (a_pod({"tty": True}), "spec.containers[main].tty"),
        (a_pod({"readinessProbe": {"exec": {}}}), "spec.containers[main].readinessProbe"),
        (
            a_pod({"securityContext": {"privileged": True}}),
            "spec.containers[main].securityContext.privileged",
        ),
        (
            a_pod({"lifecycle": {"preStop": {"httpGet": {}}}}),
            "spec.containers[main].lifecycle.preStop.httpGet",
        ),
        (a_pod(volumes=[{"name": "h", "hostPath": {"path": "/"}}]), "spec.volumes[h].hostPath"),
        (a_pod(hostPID=True), "spec.hostPID"),
        (a_pod(runtimeClassName="cedana"), "spec.runtimeClassName"),
        (
            a_pod(initContainers=[{"name": "s", "command": ["a"], "restartPolicy": "Always"}]),
            "spec.initContainers[s].restartPolicy (side-cars)",
        ),
    ],
)
def test_the_rest_is_refused_by_name(pod: dict[str, Any], found: str) -> None:
    assert refusals(pod) == [found]


def test_a_container_without_a_command_has_no_entry_point() -> None:
    (found,) = refusals(a_pod({"command": []}))
    assert found.startswith("spec.containers[main].command (missing")


def test_the_message_names_the_other_nodes() -> None:
    assert "`kubelet` nodes" in refusal_message(["spec.hostPID"])
