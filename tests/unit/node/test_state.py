"""Pod phases and container statuses that follow from what the containers did."""

from typing import Any

from local.node.state import PodState


def a_state(*, init: bool = False) -> PodState:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "i"}]}
    if init:
        spec["initContainers"] = [{"name": "first", "image": "i"}]
    return PodState.of({"metadata": {"uid": "u"}, "spec": spec})


def condition(status: dict[str, Any], kind: str) -> str:
    return next(str(one["status"]) for one in status["conditions"] if one["type"] == kind)


def test_a_running_pod_is_ready() -> None:
    state = a_state()
    state.containers[0].starts()
    state.phase = "Running"

    status = state.status()

    assert condition(status, "Ready") == condition(status, "Initialized") == "True"
    assert "running" in status["containerStatuses"][0]["state"]


def test_one_failed_container_fails_the_pod() -> None:
    state = a_state()
    state.containers[0].starts()
    state.containers[0].ends(7)

    state.concludes()

    assert state.phase == "Failed"
    terminated = state.status()["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (7, "Error")


def test_a_reason_fails_a_pod_whose_containers_succeeded() -> None:
    state = a_state()
    state.containers[0].starts()
    state.containers[0].ends(0)
    state.reason = "S3VolumeError"

    state.concludes()

    assert state.phase == "Failed"


def test_a_container_that_never_ran_keeps_the_pod_from_success() -> None:
    state = a_state(init=True)
    state.init[0].starts()
    state.init[0].ends(0)

    state.concludes()

    assert state.phase == "Failed"


def test_a_restart_counts_and_remembers_the_last_end() -> None:
    container = a_state().containers[0]
    container.starts()
    container.ends(1)
    container.waits("CrashLoopBackOff", "back-off 10s")

    between = container.status("u")
    assert between["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert between["lastState"]["terminated"]["exitCode"] == 1

    container.starts()
    after = container.status("u")
    assert (after["restartCount"], after["ready"]) == (1, True)
    assert after["lastState"]["terminated"]["exitCode"] == 1


def test_pods_that_end_with_their_node_say_so_and_others_do_not() -> None:
    """Jobs ignore such a failure, as Sluice renders them."""
    state = a_state()
    state.containers[0].starts()
    state.containers[0].ends(137, "ContainerStatusUnknown", "gone")
    state.concludes()
    kinds = {each["type"]: each for each in state.status()["conditions"]}
    assert "DisruptionTarget" not in kinds

    state.disrupted = "The node program ended"

    (told,) = (c for c in state.status()["conditions"] if c["type"] == "DisruptionTarget")
    assert (told["status"], told["reason"]) == ("True", "TerminationByKubelet")
    assert told["message"] == "The node program ended"
