"""The agent's word that it has killed a held pod counts as the proof that the pod is gone."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from sluice.core.migrations.interruption import MIGRATION_REQUESTED, request_event
from sluice.core.migrations.pod_annotations import DONE, ORDER, is_proven_ended

from tests.unit.migration.town import Town

ANSWER = {"order": "move-0", "uri": "s3://b/x.tar", "held": 5, "ended": 7}


def a_pod(
    answer: dict[str, Any] | None = None, *, deleted: bool = True, restarts: str = "Never"
) -> dict[str, Any]:
    annotations = {ORDER: "move-0", DONE: json.dumps(ANSWER if answer is None else answer)}
    metadata: dict[str, Any] = {"name": "p", "annotations": annotations}
    if deleted:
        metadata["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    return {"metadata": metadata, "spec": {"restartPolicy": restarts}}


def test_a_held_pod_that_its_agent_has_killed_is_proven_ended() -> None:
    assert is_proven_ended(a_pod())


@pytest.mark.parametrize(
    "pod",
    [
        a_pod({**ANSWER, "ended": 0}),
        a_pod({**ANSWER, "held": 0}),
        a_pod({**ANSWER, "order": "first-0"}),
        a_pod({"order": "move-0", "error": "CRIU refused"}),
        a_pod([]),  # type: ignore[arg-type]
        a_pod(deleted=False),
        a_pod(restarts="OnFailure"),
    ],
    ids=["working", "not held", "another order", "failed", "unreadable", "not deleted", "restarts"],
)
def test_nothing_less_is_a_proof(pod: dict[str, Any]) -> None:
    assert not is_proven_ended(pod)


@pytest.mark.parametrize("ended", [0, 7], ids=["no word", "its word"])
def test_the_next_generation_starts_at_the_agents_word(ended: int) -> None:
    town = Town()
    node = town.runs("w", "kubelet")
    (pod,) = (o for (k, _, _), o in town.kubernetes.objects.items() if k == "Pod")
    about = {"workload": "w", "by": "ann"}
    town.hear(request_event(MIGRATION_REQUESTED, town.clock.now(), about))
    town.save()
    town.kubernetes.dead.add(node)
    town.kubernetes._remove_pod = lambda *_: None  # type: ignore[method-assign]  # it lingers
    town.obey("w")
    assert town.row("w").generation == 0

    key = "Pod", "team", pod["metadata"]["name"]
    killed = copy.deepcopy(town.kubernetes.objects[key])
    answer = json.loads(killed["metadata"]["annotations"][DONE]) | {"held": 5, "ended": ended}
    killed["metadata"]["annotations"][DONE] = json.dumps(answer)
    killed["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    killed["spec"]["restartPolicy"] = "Never"
    town.kubernetes.objects[key] = killed
    town.obey("w")

    assert town.row("w").generation == (1 if ended else 0)
