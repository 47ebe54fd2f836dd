"""What any node promises to pods; nothing here knows of which kind the node is."""

import base64
from typing import Any

import pytest
from sluice.core.lifecycle.stuck_pods import in_preparation, warning
from sluice.core.values.reasons import Reason

from local.node.api import ApiError
from tests.contract.node.cluster import Cluster, until

pytestmark = pytest.mark.stack


def test_a_command_that_succeeds_makes_a_succeeded_pod(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "echo done")

    assert cluster.output(name) == "done\n"
    state = cluster.exit_state(name)
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert state["startedAt"] <= state["finishedAt"]
    conditions = cluster.finish(name)["status"]["conditions"]
    ready = next(one for one in conditions if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")


def test_the_exit_code_is_reported(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "exit 3")

    assert cluster.finish(name)["status"]["phase"] == "Failed"
    state = cluster.exit_state(name)
    assert (state["exitCode"], state["reason"]) == (3, "Error")


def test_death_by_a_signal_is_128_and_its_number(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "python3 -c 'import ctypes; ctypes.string_at(0)'; exit $?")

    assert cluster.exit_state(name)["exitCode"] == 139


def test_a_program_that_does_not_exist_fails_the_pod(cluster: Cluster) -> None:
    name = cluster.run("no-such-program")

    assert cluster.finish(name)["status"]["phase"] == "Failed"
    assert "no-such-program" in cluster.exit_state(name)["message"]


def test_a_deleted_pod_gets_sigterm_and_its_grace(cluster: Cluster) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saving', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    name = cluster.run("python3", "-c", script, terminationGracePeriodSeconds=30)
    cluster.await_line(name, "ready")

    cluster.delete(name)

    cluster.await_gone(name)  # long before the grace is over, as it obeyed


def test_what_ignores_sigterm_is_killed_after_the_grace(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.1; done")
    cluster.await_line(name, "deaf")

    cluster.delete(name, grace_seconds=1)

    cluster.await_gone(name)


def test_the_deadline_of_a_pod_ends_it(cluster: Cluster) -> None:
    name = cluster.run("sleep", "100", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)

    status = cluster.wait(name, "Failed")["status"]
    assert status["reason"] == "DeadlineExceeded"


def test_pre_stop_runs_before_sigterm(cluster: Cluster) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    hook = {"preStop": {"exec": {"command": ["touch", "/data/flag"]}}}
    leave = "test -e /data/flag && echo told > /dev/termination-log; exit 0"
    name = cluster.run(
        "sh",
        "-c",
        f"trap '{leave}' TERM; echo ready; while true; do sleep 0.1; done",
        container={"lifecycle": hook, "volumeMounts": mounts},
        volumes=[{"name": "data", "emptyDir": {}}],
        terminationGracePeriodSeconds=5,
        activeDeadlineSeconds=2,  # ends it without deleting it, so that the message can be read
    )

    assert cluster.exit_state(name)["message"] == "told\n"


def test_init_containers_run_first_and_share_volumes(cluster: Cluster) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    prepare = {
        "name": "prepare",
        "image": cluster.image,
        "command": ["sh", "-c", "echo prepared > /data/file"],
        "volumeMounts": mounts,
    }
    name = cluster.run(
        "cat",
        container={"args": ["/data/file"], "volumeMounts": mounts},
        initContainers=[prepare],
        volumes=[{"name": "data", "emptyDir": {}}],
    )

    assert cluster.output(name) == "prepared\n"
    (init,) = cluster.finish(name)["status"]["initContainerStatuses"]
    assert init["state"]["terminated"]["exitCode"] == 0


def test_a_failed_init_container_fails_the_pod(cluster: Cluster) -> None:
    broken = {"name": "broken", "image": cluster.image, "command": ["false"]}
    name = cluster.run("true", initContainers=[broken])

    status = cluster.wait(name, "Failed")["status"]
    assert "terminated" not in status["containerStatuses"][0]["state"]


def test_several_containers_run_side_by_side(cluster: Cluster) -> None:
    wait = "while ! test -e /data/other; do sleep 0.1; done; echo met"
    mounts = [{"name": "data", "mountPath": "/data"}]

    def container(name: str, script: str) -> dict[str, object]:
        command = ["sh", "-c", script]
        return {"name": name, "image": cluster.image, "command": command, "volumeMounts": mounts}

    name = cluster.run_pod(
        {
            "containers": [container("first", wait), container("second", "touch /data/other")],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }
    )

    assert cluster.finish(name)["status"]["phase"] == "Succeeded"
    assert cluster.logs(name, "first") == "met\n"


def test_on_failure_restarts_in_place_until_success(cluster: Cluster) -> None:
    again = "echo again; sleep 3"  # a kubelet may forget the first run when the second has ended
    script = f"if test -e /data/seen; then {again}; else touch /data/seen; echo first; exit 1; fi"
    name = cluster.run(
        "sh",
        "-c",
        script,
        restartPolicy="OnFailure",
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        volumes=[{"name": "data", "emptyDir": {}}],
    )

    cluster.await_line(name, "again")
    assert cluster.logs(name, previous="true") == "first\n"
    assert cluster.output(name) == "again\n"
    (status,) = cluster.finish(name)["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1


def test_environment_from_all_its_sources(cluster: Cluster) -> None:
    encoded = base64.b64encode(b"hush").decode()
    cluster.create("configmaps", {"metadata": {"name": "settings"}, "data": {"colour": "red"}})
    cluster.create("secrets", {"metadata": {"name": "keys"}, "data": {"key": encoded}})
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        {"name": "BOTH", "value": "$(POD)/$(KEY)/$(NONE)/$$(POD)"},
    ]
    script = 'echo "$POD $NODE $KEY $CPU $BOTH $MY_colour $(WORD)"'
    name = cluster.run(
        "sh",
        "-c",
        script,
        container={
            "env": [*env, {"name": "WORD", "value": "spelt"}],
            "envFrom": [{"prefix": "MY_", "configMapRef": {"name": "settings"}}],
            "resources": {"requests": {"cpu": "250m"}},
        },
    )

    expected = f"{name} {cluster.node} hush 1 {name}/hush/$(NONE)/$(POD) red spelt\n"
    assert cluster.output(name) == expected


def test_volumes_from_config_maps_secrets_and_the_pod_itself(cluster: Cluster) -> None:
    cluster.create("configmaps", {"metadata": {"name": "files"}, "data": {"a": "one", "b": "two"}})
    cluster.create("secrets", {"metadata": {"name": "word"}, "stringData": {"w": "mum"}})
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels['team']"}}]
    name = cluster.run_pod(
        {
            "containers": [
                {
                    "name": "main",
                    "image": cluster.image,
                    "command": ["sh", "-c", "cat /etc/files/x /etc/word/w /etc/pod/labels"],
                    "volumeMounts": [
                        {"name": "files", "mountPath": "/etc/files"},
                        {"name": "word", "mountPath": "/etc/word"},
                        {"name": "pod", "mountPath": "/etc/pod"},
                    ],
                }
            ],
            "volumes": [
                {
                    "name": "files",
                    "configMap": {"name": "files", "items": [{"key": "b", "path": "x"}]},
                },
                {"name": "word", "secret": {"secretName": "word"}},
                {"name": "pod", "downwardAPI": {"items": items}},
            ],
        },
        labels={"team": "blue"},
    )

    assert cluster.output(name) == "twomumblue"


def test_a_pod_waits_for_its_config_map(cluster: Cluster) -> None:
    reference = {"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}
    name = cluster.run("sh", "-c", "echo $LATE", container={"env": [reference]})

    def waiting() -> bool:
        pod = cluster.pod(name) or {"status": {}}
        statuses = pod["status"].get("containerStatuses", [{"state": {}}])
        state = statuses[0]["state"].get("waiting", {})
        return bool(state.get("reason") == "CreateContainerConfigError")

    until(waiting, "the pod says what it waits for")
    cluster.create("configmaps", {"metadata": {"name": "late"}, "data": {"k": "here"}})

    assert cluster.output(name) == "here\n"


@pytest.mark.parametrize(
    ("volume", "advice"),
    [
        ({"secret": {"secretName": "absent"}}, "create secret absent in its namespace"),
        ({"configMap": {"name": "absent"}}, "create configmap absent in its namespace"),
        (
            {"persistentVolumeClaim": {"claimName": "absent"}},
            "create persistentvolumeclaim absent in its namespace",
        ),
    ],
    ids=["secret", "configMap", "claim"],
)
def test_the_events_of_a_pod_without_its_volume_say_what_is_missing(
    cluster: Cluster, volume: dict[str, Any], advice: str
) -> None:
    mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    name = cluster.run("true", container=mount, volumes=[{"name": "data", **volume}])

    said = until(lambda: warning(cluster.events(name)), "a warning")

    assert said.code is Reason.VOLUME_MOUNT
    assert said.message.lower().endswith(f"{advice}, or name another one")
    pod = cluster.pod(name)
    assert pod
    assert in_preparation(pod)


def test_the_termination_message_arrives(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "printf 'loss 0.25' > /dev/termination-log")

    assert cluster.exit_state(name)["message"] == "loss 0.25"


def test_logs_by_tail_and_limit_while_it_runs(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "for i in 1 2 3 4; do echo line $i; done; echo end; sleep 60")
    cluster.await_line(name, "end")

    assert cluster.logs(name, tailLines="2") == "line 4\nend\n"
    assert cluster.logs(name, limitBytes="6") == "line 1"
    cluster.delete(name, grace_seconds=0)


def test_a_followed_log_ends_with_the_container(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "echo one; sleep 1.5; echo two")
    cluster.await_line(name, "one")

    assert cluster.logs(name, follow="true") == "one\ntwo\n"


def test_the_log_of_an_unknown_container_is_refused(cluster: Cluster) -> None:
    name = cluster.run("true")
    cluster.finish(name)

    with pytest.raises(ApiError):
        cluster.logs(name, container="other")


def test_working_folder_below_a_mount(cluster: Cluster) -> None:
    name = cluster.run(
        "sh",
        "-c",
        "echo here > file; cat /data/sub/file",
        container={
            "workingDir": "/data/sub",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        volumes=[{"name": "data", "emptyDir": {}}],
    )

    assert cluster.output(name) == "here\n"
