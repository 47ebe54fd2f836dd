"""The real use cases on in-memory ports, with messages that arrive late, twice, or never.

One seed, one run. Every call into a port may be the last one of its Lambda (a crash).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sluice.cedana.pods import VOID, restoring
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.config.model import CheckState
from sluice.core.lifecycle import checks, dependencies
from sluice.core.lifecycle.record import (
    COMES_BACK,
    ON_CLUSTER,
    TERMINAL,
    Intent,
    IntentKind,
    PodSet,
    State,
    Workload,
    is_migrating,
)
from sluice.core.lifecycle.reservations import held_by
from sluice.core.lifecycle.transitions import answer, cancel_pending, change_intent, hold, reclaim
from sluice.core.migrations.interruption import CHECKPOINT_REQUESTED, NOTICE_MS, request_event
from sluice.core.migrations.migration import eviction_id
from sluice.core.migrations.pod_annotations import DONE, DRIVER, ORDER, RESTORE_FROM
from sluice.core.migrations.restoring import RESTORE
from sluice.core.migrations.victim_checkpoint import may_be_saved
from sluice.ports import CatalogEdit, StreamRecord
from sluice.usecases.fleet import beat
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes

from tests.fakes import (
    INDEX,
    JOB_NAME,
    CrashError,
)
from tests.memory_control_plane import MemoryControlPlane
from tests.records import options_of
from tests.unit.usecases.cedana import FakeCedana

CLUSTER, ROOT = "batch-1", "cohort"


class Fragile:
    """A port whose calls may end the process just before or just after their effect."""

    def __init__(self, port: Any, dice: random.Random, chance: float) -> None:
        self._port, self._dice, self._chance = port, dice, chance

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._port, name)
        if not callable(inner):
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._dice.random() < self._chance:
                raise CrashError
            answer = inner(*args, **kwargs)
            if self._dice.random() < self._chance:
                raise CrashError
            return Fragile(answer, self._dice, self._chance) if name == "cluster" else answer

        return call


def queue(name: str, nominal: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "cohortName": ROOT,
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {
                            "name": "spot",
                            "resources": [{"name": "cpu", "nominalQuota": str(nominal)}],
                        }
                    ],
                }
            ],
            **spec,
        },
    }


def nominal(queue: dict[str, Any]) -> int:
    (group,) = queue["spec"]["resourceGroups"]
    return int(group["flavors"][0]["resources"][0]["nominalQuota"])


FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "spot"},
    "spec": {"nodeLabels": {"karpenter.sh/nodepool": "spot"}},
}
LOCAL_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "queue", "namespace": "team"},
    "spec": {"clusterQueue": "a"},
}
CHECK = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "approval"},
    "spec": {"controllerName": "sluice.dev/callback"},
}
CEDANA = {
    "url": "https://cedana.test",
    "clusterId": "c-1",
    "tokenSecret": "arn:aws:secretsmanager:us-east-1:123456789012:secret:cedana",
}
MANIFEST = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "job", "namespace": "team"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "train:1",
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            }
        }
    },
}


@dataclass(frozen=True)
class Gone:
    """EC2, when it is asked for machines that are gone, and the queue in which its word ends."""

    world: World

    def ended(self, instances: Sequence[str]) -> list[dict[str, Any]]:
        gone = sorted(self.world.kubernetes.dead)
        asked = [node for node in gone if self.world.instance(node) in instances]
        return [self.world.ended(node, "terminated") for node in asked]

    def send(self, envelope: dict[str, Any]) -> None:
        self.world.news.append(envelope)


@dataclass
class World(MemoryControlPlane):
    seed: int
    crashes: float = 0.02
    queues: tuple[dict[str, Any], ...] = (queue("a", 2), queue("b", 1))
    machines_end: bool = False
    checked: bool = False
    damage: float = 0.0
    """How likely an archive is one from which nothing starts."""
    with_cedana: bool = False
    lingering: float = 0.3
    dice: random.Random = field(init=False)
    running_seen: int = 0
    moved_seen: int = 0
    restored_seen: int = 0
    last_dumps_seen: int = 0
    victims_saved_seen: int = 0
    damage_seen: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        MemoryControlPlane.__init__(self)
        self.bus = self.timeline
        self.cedana = FakeCedana(self.kubernetes, self.dice)
        self.kubernetes.lingers = lambda: self.dice.random() < self.lingering
        self.failed_by_itself: set[tuple[str, int]] = set()
        put = [("ResourceFlavor", "spot", FLAVOR), ("Cluster", CLUSTER, {"spec": {}})]
        put += [("LocalQueue", "team/queue", LOCAL_QUEUE)]
        if self.with_cedana:
            put[1] = ("Cluster", CLUSTER, {"spec": {"cedana": CEDANA}})
        if self.checked:
            put += [("AdmissionCheck", "approval", CHECK)]
            named = {"admissionChecksStrategy": {"admissionChecks": [{"name": "approval"}]}}
            self.queues = tuple({**q, "spec": {**q["spec"], **named}} for q in self.queues)
        put += [("ClusterQueue", q["metadata"]["name"], q) for q in self.queues]
        assert self.catalog.edit(CatalogEdit(0, tuple(put), roots=(ROOT,)))
        self.streamed = 0
        self.news: list[dict[str, Any]] = []
        self.doomed: dict[str, int] = {}
        self.saved_seen = {""}
        self.parts_seen: dict[str, set[str]] = {}
        self.adopted_seen: set[str] = set()
        beat(self.nodes, CLUSTER, self.clock.now())

    def fragile(self, port: Any) -> Any:
        return Fragile(port, self.dice, self.crashes)

    def submit(
        self,
        name: str,
        cq: str,
        cpu: int,
        *,
        priority: int = 0,
        mode: str = "",
        after: str = "",
        members: int = 1,
    ) -> None:
        options: dict[str, Any] = {"checkpoint": {"mode": mode}} if mode else {}
        if after:
            options["depends_on"] = [{"id": after, "condition": "Finished"}]
        workload = Workload(
            name,
            name,
            "team",
            "team/queue",
            State.PENDING,
            cq=cq,
            root=ROOT,
            digest=name,
            priority=priority,
            created_at=self.clock.now(),
            pod_sets=(PodSet("main", members, {"cpu": cpu * 1000}),),
            options=options_of(options),
        )
        gang = {"completionMode": "Indexed", "parallelism": members, "completions": members}
        spec = {**MANIFEST["spec"], **(gang if members > 1 else {})}
        self.manifests.put_many({workload.manifest_key: {**MANIFEST, "spec": spec}})
        self.workloads.create(dependencies.blocked(workload))

    def detect_lost_nodes(self) -> DetectLostNodes:
        return DetectLostNodes(Gone(self), Gone(self))

    # One step of each Lambda, on ports that may crash.

    def admit(self) -> None:
        use = self.admit_use_case(self.fragile)
        self._run(lambda: use(ROOT))

    def act(self) -> None:
        if not self.commands.sent:
            return
        position = self.dice.randrange(len(self.commands.sent))
        cluster, ids = self.commands.sent[position]
        use = self.act_use_case(self.fragile)
        self._run(lambda: use(cluster, ids))
        if self.dice.random() < 0.7:  # otherwise the message comes again
            self.commands.sent.pop(position)

    def relay(self) -> None:
        fresh = self.workloads.changed[self.streamed :]
        self.streamed = len(self.workloads.changed)
        kept = [pair for pair in fresh if self.dice.random() < 0.8]  # the rest is lost
        use = self.relay_use_case(self.fragile)
        self._run(lambda: use([StreamRecord(*pair, self.clock.now()) for pair in kept]))

    def observe(self) -> None:
        use = self.observe_use_case(self.fragile, pods_ready_ms=10**9)

        def once() -> ClusterState:
            return use.reconcile(CLUSTER, self.fragile(self.kubernetes)).state

        self._run(once)

    def sweep(self) -> None:
        assert not self.sweep_use_case()().drift

    def machines(self) -> None:
        """EC2 warns of a machine's end, or just ends it; its word comes late, twice, or never."""
        pods, _ = self.kubernetes.list("Pod")
        used = sorted({pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]})
        alive = [node for node in used if node not in self.kubernetes.dead]
        if alive and self.dice.random() < 0.5:
            node = self.dice.choice(alive)
            if self.dice.random() < 0.6:
                self.doomed.setdefault(node, self.clock.now() + NOTICE_MS)
                self.news.append(self.spot_notice(node, self.clock.now()))
            else:
                self.doomed[node] = self.clock.now()
        for node, until in list(self.doomed.items()):
            if until <= self.clock.now():
                del self.doomed[node]
                self.kubernetes.vanish(node)
                self.news += [self.ended(node, "shutting-down"), self.ended(node, "terminated")]
        self.kubernetes.provide()
        if self.dice.random() < 0.05:
            self.kubernetes.notice_the_dead()

    def interrupt(self) -> None:
        if not self.news:
            return
        position = self.dice.randrange(len(self.news))
        event = self.news[position]
        use = self.interrupt_use_case(self.fragile)
        if self.dice.random() < 0.9:  # otherwise it is lost
            self._run(lambda: use(event, account="1", region="r"))
        if self.dice.random() < 0.7:  # otherwise it comes again
            self.news.pop(position)

    def spot_notice(self, node: str, at: int) -> dict[str, Any]:
        detail = {"instance-id": self.instance(node), "instance-action": "terminate"}
        return self.event("EC2 Spot Instance Interruption Warning", at, detail)

    def ended(self, node: str, state: str) -> dict[str, Any]:
        detail = {"instance-id": self.instance(node), "state": state}
        return self.event("EC2 Instance State-change Notification", self.clock.now(), detail)

    def instance(self, node: str) -> str:
        return node.replace("node-", "i-")

    def event(self, kind: str, at: int, detail: dict[str, str]) -> dict[str, Any]:
        time = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"version": "0", "id": f"{kind}-{at}", "account": "1", "region": "r",
                "source": "aws.ec2", "detail-type": kind, "time": time,
                "resources": [f"arn:aws:ec2:r:instance/{detail['instance-id']}"],
                "detail": detail}  # fmt: skip

    def cedana_works(self) -> None:
        """Cedana goes on with something, or not; what it has saved may be restored."""
        action = self.dice.choice([*self.cedana.actions] or [""])
        if action:
            self.cedana.failing = 0.15
            self.cedana.work(action)

    def agents(self) -> None:
        """The agents of living nodes carry out what they were told, or cannot."""
        for (kind, namespace, name), pod in list(self.kubernetes.objects.items()):
            ordered = pod["metadata"].get("annotations", {}).get(ORDER)
            if kind != "Pod" or not ordered or pod["spec"].get("nodeName") in self.kubernetes.dead:
                continue
            if pod["metadata"]["annotations"].get(DRIVER) == "cedana":
                continue
            if self.dice.random() < 0.2:  # this node is slower than the others
                continue
            uri = self.archived(pod, ordered)
            done = {
                "order": ordered,
                "uri": uri,
                "bytes": 10**9,
                "seconds": 9,
                "at": self.clock.now(),
            }
            if self.dice.random() < 0.2:
                done = {"order": ordered, "error": "criu failed"}
            marks = {DONE: json.dumps(done)}
            self.kubernetes.patch("Pod", namespace, name, {"metadata": {"annotations": marks}})

    def archived(self, pod: dict[str, Any], order: str) -> str:
        """Where an agent puts its archive; a set is there as soon as every member's archive is."""
        metadata = pod["metadata"]
        index = metadata["labels"].get(INDEX)
        if index is None:
            uri = f"s3://bucket/{order}/{metadata['name']}.tar"
            self.saved_seen.add(uri)
            return self.perhaps_damaged(uri)
        owner, generation = (
            metadata["labels"][f"sluice.dev/{n}"] for n in ("workload", "generation")
        )
        folder = f"s3://bucket/{owner}/{generation}/{order}/"
        saved = self.parts_seen.setdefault(folder, set())
        saved.add(index)
        if len(saved) == sum(s.count for s in self.workloads.rows[owner].pod_sets):
            self.saved_seen.add(folder)
        return self.perhaps_damaged(f"{folder}{metadata['name']}.tar")

    def perhaps_damaged(self, uri: str) -> str:
        if self.damage and self.dice.random() < self.damage:
            self.kubernetes.damaged.add(uri)
        return uri

    def check_sets(self) -> None:
        """No gang runs from half of a set, or from the halves of two."""
        for catalogue in self.migrations.catalogue.values():
            for each in catalogue.kept:
                assert {p.name for p in each.parts} in (set(), {"0", "1", "2"}), "a torn manifest"
                assert all(p.uri.startswith(each.uri) for p in each.parts), "of two orders"
        for (kind, namespace, _), pod in self.kubernetes.objects.items():
            index = pod["metadata"].get("labels", {}).get(INDEX)
            if kind != "Pod" or index is None or pod["status"]["phase"] != "Running":
                continue
            of = self.kubernetes.objects["Job", namespace, pod["metadata"]["labels"][JOB_NAME]]
            source = of["metadata"]["annotations"].get(RESTORE_FROM, "")
            given = pod["metadata"]["annotations"].get(RESTORE_FROM, "")
            assert bool(given) == bool(source), f"seed {self.seed}: a member begins elsewhere"
            assert given.startswith(source), f"seed {self.seed}: parts of two sets"
            assert not given or given.endswith(f"-{index}-pod.tar"), "another member's part"
            self.restored_seen += bool(given)

    def finish_one(self) -> None:
        pods = [key for key, each in self.kubernetes.objects.items()
                if key[0] == "Pod" and key[1] == "team" and each["status"]["phase"] == "Running"
                and each["spec"]["nodeName"] not in self.kubernetes.dead]  # fmt: skip
        if pods:
            key = self.dice.choice(pods)
            namespace, labels = key[1], self.kubernetes.objects[key]["metadata"]["labels"]
            job = labels[JOB_NAME]
            members = [
                key
                for key in pods
                if self.kubernetes.objects[key]["metadata"]["labels"][JOB_NAME] == job
            ]
            whole = INDEX not in labels or len(members) == 3
            if whole and ("Job", namespace, job) in self.kubernetes.objects:
                code = self.dice.choice([0, 0, 1])
                if code:
                    run = labels["sluice.dev/workload"], int(labels["sluice.dev/generation"])
                    self.failed_by_itself.add(run)
                self.kubernetes.finish(namespace, job, exit_code=code)

    def approve(self, *states: str) -> None:
        """Somebody answers the admission check of some workload, perhaps twice or differently."""
        gated = [w for w in self.workloads.rows.values() if w.gated]
        for workload in gated[: 1 + self.dice.randrange(2)]:
            said = answer(workload, "approval", self.dice.choice(states), "", self.clock.now())
            self.workloads.apply([said])

    def disturb(self) -> None:
        """A user cancels, a gang is requeued, or somebody deletes a Job behind our back."""
        rows = [w for w in self.workloads.rows.values() if w.state not in TERMINAL]
        if not rows:
            return
        workload = self.dice.choice(rows)
        what = self.dice.random()
        if workload.state is State.PENDING and what < 0.3:
            self.workloads.apply([cancel_pending(workload, "by a user", self.clock.now())])
        elif workload.state in (State.ADMITTED, State.DISPATCHED) and what < 0.6:
            kind = self.dice.choice([IntentKind.CANCEL, IntentKind.REQUEUE, IntentKind.FAIL])
            self.workloads.apply([reclaim(workload, Intent(kind, "TEST:Disturbed"))])
        elif workload.state is State.DISPATCHED:
            name = f"w-{workload.id}-g{workload.generation}"
            self.kubernetes.delete("Job", "team", name)

    def step(self) -> None:
        self.clock.pass_ms(self.dice.choice([10, 100, 1000, 20_000]))
        actions = [self.admit, self.act, self.act, self.relay, self.observe, self.finish_one]
        if self.checked:
            actions += [lambda: self.approve("Ready", "Ready", "Ready", "Retry", "Rejected")] * 2
        if self.machines_end:
            actions = [*actions[:-1], self.machines, self.interrupt, self.agents]
            if self.dice.random() < 0.1:
                actions = [self.finish_one]
        if self.dice.random() < 0.15:
            actions = [self.disturb, self.sweep, self.kubernetes.collect]
        self.dice.choice(actions)()
        self.check()

    def ask_for_checkpoint(self) -> None:
        """A user, or the interval of some workload."""
        running = [w for w in self.workloads.rows.values() if w.state is State.DISPATCHED]
        if running:
            now = self.clock.now()
            about = {"workload": self.dice.choice(running).id, "order": f"request-{now}"}
            self.news.append(request_event(CHECKPOINT_REQUESTED, now, about))

    def step_of_a_gang(self) -> None:
        """As `step`, but runs are long enough to be saved and lost more than once."""
        self.clock.pass_ms(self.dice.choice([10, 100, 1000, 10_000]))
        actions = [self.admit, self.act, self.act, self.act, self.relay, self.observe, self.observe]
        actions += [self.interrupt, self.interrupt, self.agents, self.ask_for_checkpoint]
        if self.dice.random() < 0.12:
            actions = [self.machines, self.machines, self.sweep, self.kubernetes.collect]
            actions += [self.finish_one] * (self.dice.random() < 0.2)
        self.dice.choice(actions)()
        self.check()

    def step_of_a_move(self) -> None:
        """As `step_of_a_gang`, but time goes by slowly, and `observe` sends who moves to `act`."""
        self.clock.pass_ms(self.dice.choice([10, 100, 1000, 3_000]))
        actions = [self.admit, self.act, self.act, self.act, self.relay, self.observe]
        actions += [self.nudge, self.nudge, self.interrupt, self.agents, self.agents]
        if self.dice.random() < 0.1:
            actions = [self.machines, self.machines, self.sweep, self.ask_for_checkpoint]
        self.dice.choice(actions)()
        self.check()

    def step_of_a_victim(self) -> None:
        """As `step_of_a_move`, but it is others that want the place."""
        self.clock.pass_ms(self.dice.choice([10, 100, 1000, 3_000]))
        actions = [self.admit, self.act, self.act, self.act, self.relay, self.observe]
        actions += [self.nudge, self.nudge, self.interrupt, self.agents, self.agents]
        if self.dice.random() < 0.12:
            actions = [self.give_way] * 4 + [self.machines] * 2 + [self.sweep]
            actions += [self.finish_one] * (self.dice.random() < 0.2)
        self.dice.choice(actions)()
        self.check()

    def give_way(self) -> None:
        """Somebody is preempted or requeued; or who makes room, or moves, is cancelled."""
        rows = [w for w in self.workloads.rows.values() if w.state in ON_CLUSTER]
        if not rows:
            return
        workload = self.dice.choice(rows)
        if workload.state is not State.RECLAIMING:
            kind = self.dice.choice([IntentKind.PREEMPT, IntentKind.REQUEUE])
            self.workloads.apply([reclaim(workload, Intent(kind, "TEST:Yields"))])
        elif self.dice.random() < 0.05:
            cancelled = Intent(IntentKind.CANCEL, "TEST:Cancelled")
            self.workloads.apply([change_intent(workload, cancelled)])

    def step_beside_cedana(self) -> None:
        """As `step_of_a_move`, with somebody who saves and restores pods, and users who cancel."""
        self.clock.pass_ms(self.dice.choice([10, 100, 1000, 3_000]))
        actions = [self.admit, self.act, self.act, self.act, self.relay, self.observe]
        actions += [self.nudge] * 3 + [self.cedana_works] * 3 + [self.interrupt]
        if self.dice.random() < 0.1:
            actions = [self.machines, self.machines, self.sweep, self.ask_for_checkpoint]
            actions += [self.kubernetes.collect]
            actions += [self.disturb, self.finish_one] * (self.dice.random() < 0.2)
        self.dice.choice(actions)()
        self.check()

    def nudge(self) -> None:
        pressing = self.workloads.rows.values()
        moving = [w.id for w in pressing if is_migrating(w) or may_be_saved(w)]
        moving += [w.id for w in pressing if self.with_cedana and w.cluster]
        if moving:
            self.commands.send(CLUSTER, moving)

    def settle(self) -> None:
        """No more trouble and no more messages: sweep, observe and what they send come home."""
        self.crashes = 0.0
        for _ in range(60):
            self.clock.pass_ms(20_000)
            self.kubernetes.provide()
            self.kubernetes.notice_the_dead()
            self.kubernetes.collect()
            self.cedana.work_on()
            self.say_what_never_came()
            self.approve("Ready")
            for each in [w for w in self.workloads.rows.values() if w.held]:
                self.workloads.apply([hold(each, on=False)])
            self.sweep()
            self.admit()
            self.observe()
            while self.commands.sent:
                cluster, ids = self.commands.sent.pop()
                self.act_use_case()(cluster, ids)
            for _ in range(5):
                self.finish_one()
            self.check()
            if all(w.state in TERMINAL and not w.reservation for w in self.workloads.rows.values()):
                return
        stuck = [(w.id, w.state, w.generation) for w in self.workloads.rows.values()
                 if w.state not in TERMINAL or w.reservation]  # fmt: skip
        raise AssertionError(f"seed {self.seed}: did not come home: {stuck}")

    def say_what_never_came(self) -> None:
        """An administrator's word on restores of which only a dead Lambda heard, or nobody."""
        known = {each.pod["metadata"]["uid"] for each in self.cedana.actions.values()}
        for (kind, namespace, name), pod in list(self.kubernetes.objects.items()):
            asked = restoring(pod)
            if kind == "Pod" and known and asked.source and not (asked.action or asked.found):
                change = {"metadata": {"annotations": {VOID: "true"}}}
                self.kubernetes.patch("Pod", namespace, name, change)

    def check_order(self) -> None:
        """Nobody starts before those that it waits for have ended or answered."""
        for each in self.workloads.rows.values():
            if self.checked and each.state is State.DISPATCHED and not each.gone:
                assert checks.states(each) == {"approval": CheckState.READY}
            for other in each.options.depends_on:
                started = each.state not in (State.PENDING, State.CANCELLED, State.REJECTED)
                assert not started or self.workloads.rows[other.id].state in TERMINAL

    def check(self) -> None:
        """Invariants I1, I2, I3, I7 of the ledger protocol."""
        self.check_order()
        self.check_sets()
        usage: dict[str, dict[str, int]] = {}
        for w in self.workloads.rows.values():
            if w.reservation:
                of_queue = usage.setdefault(w.reservation.cq, {})
                for cell, amount in held_by(w).items():
                    of_queue[cell] = of_queue.get(cell, 0) + amount
        ledger = self.ledgers.read(ROOT)
        assert ledger.usage == usage, f"seed {self.seed}: I1 {ledger.usage} != {usage}"
        total = sum(amount for row in usage.values() for amount in row.values())
        most = 1000 * sum(nominal(each) for each in self.queues)
        assert total <= most, f"seed {self.seed}: I2 {total} millicores of {most}"
        running = self.kubernetes.running()
        assert len(running) == len(set(running)), f"seed {self.seed}: I3 two runs of one workload"
        self.moved_seen = sum(
            run.outcome == "migrate" for w in self.workloads.rows.values() for run in w.runs
        )
        self.damage_seen = sum(
            run.why == RESTORE for w in self.workloads.rows.values() for run in w.runs
        )
        self.last_dumps_seen = sum(
            bool(move.first and move.saved and move.saved != move.first)
            for move in self.migrations.rows.values()
        )
        self.victims_saved_seen = sum(
            run.outcome in COMES_BACK and bool(move and move.saved)
            for w in self.workloads.rows.values()
            for run in w.runs
            for move in (self.migrations.rows.get(eviction_id(w.id, run.generation)),)
        )
        self.running_seen = max(self.running_seen, len(running))
        self.adopted_seen |= {
            name
            for (kind, _, name), each in self.kubernetes.objects.items()
            if kind == "Pod" and each["metadata"].get("ownerReferences")
        }
        self.saved_seen |= {f"cedana://{CLUSTER}/{action}" for action in self.cedana.saved()}
        for w in self.workloads.rows.values():
            assert w.restore_from in self.saved_seen, f"seed {self.seed}: restored from nothing"
        for w in self.workloads.rows.values():
            made_room = self.migrations.rows.get(eviction_id(w.id, w.generation - 1))
            if w.state is State.PENDING and made_room and made_room.saved:
                order = f"/yield-{w.generation - 1}/"
                kept = {each.image or each.uri for each in made_room.saved.values()}
                # A set lies in the folder of its order; an address of Cedana names no order.
                found = order in w.restore_from or w.restore_from in kept
                assert found, f"seed {self.seed}: what was saved is given away"
        for w in self.workloads.rows.values():
            of_its_job = ":" not in w.result.reason  # the codes of Sluice have one
            if w.state is State.FINISHED and of_its_job:
                failed = not w.result.succeeded
                own = (w.id, w.generation) in self.failed_by_itself
                assert own or not failed, f"seed {self.seed}: ended by its own deletion"
        for workload_id in running:
            assert self.workloads.rows[workload_id].reservation, f"seed {self.seed}: I3 no quota"

    def _run(self, do: Any) -> None:
        try:
            do()
        except CrashError:
            return
