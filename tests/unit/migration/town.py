"""A world in which nothing goes wrong by itself, and whose Lambdas take turns without dice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluice.core.lifecycle.record import State, Workload, is_migrating
from sluice.core.migrations.pod_annotations import DONE, ORDER, annotations_of, ordered_result
from sluice.core.migrations.victim_checkpoint import may_be_saved
from sluice.ports import StreamRecord
from sluice.usecases.migrations.interrupt import Interrupt, NoticeOutcome

from tests.fakes import CrashError
from tests.unit.usecases.world import CLUSTER, World, queue

# What a move tells, in the only order in which it can happen.
STORY = (
    "InterruptionNoticed", "CheckpointDecided", "SourceStopping", "SourceFenced", "Moved",
    "Resumed",
)  # fmt: skip


class Town(World):
    def __init__(self, *, with_cedana: bool = False) -> None:
        queues = (queue("a", 40),)
        super().__init__(0, crashes=0.0, lingering=0.0, queues=queues, with_cedana=with_cedana)
        self.saving = False

    def runs(self, name: str, mode: str = "application", members: int = 1) -> str:
        """Submit a workload and let it run; the node on which it does, or its first member."""
        self.submit(name, "a", 1, mode=mode, members=members)
        self.admit()
        self.obey(name)
        self.obey(name)  # lets a gang start, once all of its pods have machines
        self.observe()
        (pod, *_) = [
            each
            for (kind, _, _), each in self.kubernetes.objects.items()
            if kind == "Pod" and each["metadata"]["labels"].get("sluice.dev/workload") == name
        ]
        return str(pod["spec"]["nodeName"])

    def obey(self, *names: str) -> None:
        """What `act` does at a command."""
        self.act_use_case(self.fragile)(CLUSTER, names)

    def interrupt_use(self) -> Interrupt:
        return self.interrupt_use_case(self.fragile)

    def hear(self, event: dict[str, Any]) -> NoticeOutcome:
        (handled,) = self.interrupt_use()(event, account="1", region="r")
        return handled

    def tell(self) -> None:
        """What `relay` does with all that was written since; in order, and nothing is lost."""
        fresh = self.workloads.changed[self.streamed :]
        at = self.clock.now()
        changes = [StreamRecord(*pair, at) for pair in fresh]
        self.relay_use_case(self.fragile)(changes)
        self.streamed += len(fresh)

    def save(self) -> None:
        """Every agent of a living node saves what it is ordered to, now and in turns to come."""
        self.saving = True
        for (kind, namespace, name), pod in list(self.kubernetes.objects.items()):
            order = annotations_of(pod).get(ORDER, "")
            alive = kind == "Pod" and pod["spec"].get("nodeName") not in self.kubernetes.dead
            if not (order and alive) or ordered_result(pod) is not None:
                continue
            uri = self.archived(pod, order)
            done = {"order": order, "uri": uri, "bytes": 1, "seconds": 1, "at": self.clock.now()}
            marks = {"metadata": {"annotations": {DONE: json.dumps(done)}}}
            self.kubernetes.patch("Pod", namespace, name, marks)

    def drain(self) -> None:
        """Every command that was sent, by `act`."""
        while self.commands.sent:
            _, ids = self.commands.sent[0]
            self.obey(*ids)
            self.commands.sent.pop(0)

    def turn(self) -> None:
        """Each Lambda once; `observe` sends those that move to `act` again, as when it watches."""
        moving = [w.id for w in self.workloads.rows.values() if is_migrating(w) or may_be_saved(w)]
        for lambda_ in (self.tell, self.sweep, self.admit, self.observe, self.drain):
            lambda_()
            self.check()
        if self.saving:
            self.save()
        self.obey(*moving)
        self.check()
        while self.news:
            self.hear(self.news.pop(0))
            self.check()

    def pass_quietly(self, seconds: int, *, nodes: bool = True) -> None:
        """Time in which messages are handled and pods get nodes (or none are to be had)."""
        for _ in range(0, seconds, 10):
            self.clock.pass_ms(10_000)
            if nodes:
                self.kubernetes.provide()
            self.turn()

    def end(self, node: str) -> None:
        """EC2 takes the machine, and says so."""
        self.kubernetes.vanish(node)
        self.check()
        for state in ("shutting-down", "terminated"):
            self.hear(self.ended(node, state))
            self.check()

    def notice(self, node: str) -> dict[str, Any]:
        return self.spot_notice(node, self.clock.now())

    def row(self, name: str) -> Workload:
        return self.workloads.rows[name]

    def told(self, name: str) -> list[str]:
        return [line.what for line in self.timeline.lines if line.workload.id == name]

    def runs_once_more(self, name: str, *, saved: str = "") -> None:
        """After a move: one copy at work with its quota, from what was saved, truly told."""
        row = self.row(name)
        assert (row.state, row.generation) == (State.DISPATCHED, 1)
        assert self.kubernetes.running().count(name) == 1
        assert row.reservation
        assert row.restore_from == saved, "what was saved is lost"
        self.check()
        self.told_truly(name)

    def told_truly(self, name: str) -> None:
        """The timeline of a finished move: each line once, in its order, and as it was recorded."""
        lines, move = self.timeline.of(name), self.migrations.rows[f"{name}#0"]
        story = [line["what"] for line in lines if line["what"] in STORY]
        assert story == [w for w in STORY if w != "SourceStopping" or move.stopping_at]
        assert all(line["at"] <= self.clock.now() for line in lines)
        what = {line["what"] for line in lines}
        assert ("CheckpointCompleted" in what) == bool(move.saved or move.first)
        assert ("CheckpointFailed" in what) == bool(move.error or move.first_error)
        assert ("LastCheckpointDecided" in what) == bool(move.last_reason)

    def _run(self, do: Callable[[], object]) -> None:
        do()


@dataclass
class Countdown:
    """Dice that end the process at one chosen moment: just before or after a call of a port."""

    left: int | None = None  # None: never
    came: bool = False

    def random(self) -> float:
        if self.left is None or self.came:
            return 1.0
        self.left -= 1
        self.came = self.left < 0
        return 0.0 if self.came else 1.0


class CrashingTown(Town):
    """A town in which one Lambda dies once, `countdown.left` moments from now."""

    def __init__(self) -> None:
        self.countdown = Countdown()
        super().__init__()
        self.crashes = 0.5

    def fragile(self, port: Any) -> Any:
        self.dice = self.countdown  # type: ignore[assignment]  # dice that are not thrown
        return super().fragile(port)

    def attempt(self, step: Callable[[], object], *, again: bool = True) -> None:
        """A Lambda's turn; if it dies, its message comes again, or (a lost one) does not."""
        self.clock.pass_ms(100)
        try:
            step()
        except CrashError:
            self.clock.pass_ms(100)
            self.check()
            if again:
                step()
        self.check()
