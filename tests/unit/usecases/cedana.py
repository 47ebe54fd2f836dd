"""Cedana as a neighbour: it may be slow, fail, forget to answer, or do more than it was asked."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from sluice.cedana.pods import ActionProgress, CedanaAction
from sluice.errors import CheckpointServiceError, CheckpointServiceRefused
from sluice.ports import Document

from tests.fakes import CONTROLLER_UID, JOB_NAME, FakeKubernetes


@dataclass
class Begun:
    kind: str
    pod: Document
    progress: ActionProgress = ActionProgress.UNDER_WAY


@dataclass
class FakeCedana:
    """`work` goes on with what was begun; `of` makes it serve every cluster.

    What fails, fails with the chance `failing`; `silent`: no answer says what was begun; `twice`:
    it restores two pods where one was asked for.
    """

    kubernetes: FakeKubernetes
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    failing: float = 0.0
    silent: bool = False
    refusing: CheckpointServiceRefused | None = None
    twice: bool = False
    actions: dict[str, Begun] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def of(self, cluster: str) -> FakeCedana:
        assert cluster
        return self

    def newest(self, pod_uid: str) -> str:
        about = [i for i, each in self.actions.items() if each.pod["metadata"]["uid"] == pod_uid]
        return about[-1] if about else ""

    def checkpoint(self, pod_uid: str) -> str:
        (pod,) = (
            each
            for (kind, _, _), each in self.kubernetes.objects.items()
            if kind == "Pod" and each["metadata"]["uid"] == pod_uid
        )
        return self._begin(Begun("checkpoint", pod))

    def restore(self, checkpoint: str) -> str:
        saved = self.actions[checkpoint]
        assert (saved.kind, saved.progress) == ("checkpoint", ActionProgress.READY)
        assert checkpoint not in self.retired, "what was retired cannot be restored"
        return self._begin(Begun("restore", saved.pod))

    def look(self, action: str) -> CedanaAction:
        progress = self.actions[action].progress
        return CedanaAction(
            progress, "it did not work" if progress is ActionProgress.FAILED else ""
        )

    def retire(self, checkpoint: str) -> None:
        self.retired.append(checkpoint)

    def begun(self, kind: str) -> list[str]:
        return [action for action, each in self.actions.items() if each.kind == kind]

    def saved(self) -> list[str]:
        ready = (i for i, each in self.actions.items() if each.progress is ActionProgress.READY)
        return [action for action in ready if self.actions[action].kind == "checkpoint"]

    def work(self, action: str) -> None:
        each = self.actions[action]
        if each.progress is not ActionProgress.UNDER_WAY:
            return
        if self.dice.random() < self.failing:
            each.progress = ActionProgress.FAILED
            return
        each.progress = ActionProgress.READY
        if each.kind == "restore":
            for _ in range(1 + self.twice):
                self.kubernetes.create(self._restored(each.pod))

    def work_on(self) -> None:
        for action in list(self.actions):
            self.work(action)

    def _begin(self, begun: Begun) -> str:
        if self.refusing is not None:
            raise self.refusing
        action = f"action-{next(self.numbers)}"
        self.actions[action] = begun
        if self.silent:
            raise CheckpointServiceError("no answer")
        return action

    def _restored(self, pod: Document) -> Document:
        """A bare pod with the labels of the saved one, and nothing else of it."""
        at = pod["metadata"]
        kept = {JOB_NAME, CONTROLLER_UID} & at["labels"].keys()
        assert kept, "it was saved as the pod of a Job"
        number = next(self.numbers)
        return {
            "kind": "Pod",
            "metadata": {
                "name": f"{at['name']}-restored-{number}",
                "namespace": at["namespace"],
                "labels": dict(at["labels"]),
                "creationTimestamp": f"2026-01-01T00:00:{number % 60:02}Z",
            },
            "spec": {"containers": pod["spec"]["containers"]},
        }
