"""A recorded pass can be told apart from a changed one, and gives the same plan again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sluice.core.clusters.capacity import Closure
from sluice.core.clusters.fallback import Market
from sluice.core.clusters.fleet import Site
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.kueue_objects import ConfigObjects, parse_objects
from sluice.core.config.model import Assignment, WorkloadInfo
from sluice.core.config.model import PodSetAssignment as Assigned
from sluice.core.config.policy import AdmissionFairSharing, Policy
from sluice.core.lifecycle.record import State
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan
from sluice.core.passes.recording import (
    Snapshot,
    decide,
    differences,
    objects_below,
    plain_plan,
    read_recording,
    record,
    snapshot_digest,
)
from sluice.core.scheduling.past_usage import PastUsage, UsageStart
from sluice.core.values.plain import canonical, from_plain, to_plain
from sluice.core.values.reasons import Reason

from cli.main import sluice
from tests.simulation.builders import Json, cohort, documents, local_queue, preemption, queue
from tests.unit.usecases.plane import a_workload, admitted

NOW = 1_800_000_000_000


def snapshot() -> Snapshot:
    """One queue in which high evicts low; small is admitted where ended gives its quota back."""
    objects = parse_objects(
        documents(
            queue("a", "team", {"spot": {"cpu": (1, 0)}}, spec=preemption("LowerPriority", "Any")),
            queue("b", "team", {"spot": {"cpu": 1}}),
            local_queue("ns/l", "b"),
        )[:-1]
    )
    ended = admitted("ended", state=State.FINISHED, cq="b")
    assert ended.reservation is not None
    ended = replace(ended, reservation=replace(ended.reservation, cq="b"))
    late = a_workload("late", options={"deadlines": {"max_pending_seconds": 1}}, created_at=0)
    account = PastUsage(7, {"cpu": 1500.5}, {"cpu": 1000}, (UsageStart(1, 2, {"cpu": 1000}),))
    closed = {"od": Closure(Reason.INSUFFICIENT_INSTANCE, "sold out", NOW)}
    gathered = CycleInput(
        root="team",
        usage={"a": {"spot|cpu": 1000}, "b": {"spot|cpu": 1000}},
        releasing=[ended],
        waiting=[a_workload("high", priority=5), a_workload("small", cq="b"), late],
        holders=[admitted("low", priority=-1)],
        sites=[Site("batch-1", frozenset({"spot"}), rates={"spot": {"cpu": (3, 1000)}})],
        market=Market({"batch-1": ["spot"]}, {"spot": frozenset({"spot"})}, {"batch-1": closed}),
        now=NOW,
        parked=frozenset({"x", "b"}),
        past={"ns/l": account},
    )
    return Snapshot(gathered, Policy(admission_fair_sharing=AdmissionFairSharing(10_000)), objects)


def recorded() -> Json:
    one = snapshot()
    document: Json = json.loads(record(one, decide(one)).text)
    return document


def test_a_snapshot_survives_the_way_through_json() -> None:
    one = snapshot()

    again = from_plain(Snapshot, json.loads(canonical(to_plain(one))))

    assert snapshot_digest(again) == snapshot_digest(one)
    assert again.gathered.waiting == tuple(one.gathered.waiting)
    assert again.gathered.past == one.gathered.past
    assert again.gathered.market.closed == one.gathered.market.closed
    assert (again.policy, again.objects) == (one.policy, one.objects)


def test_a_recording_gives_the_same_plan_again() -> None:
    document = recorded()

    recording = read_recording(document)
    plan = plain_plan(decide(recording.snapshot))

    assert [one["step"][0] for one in document["plan"]["preempted"]] == ["low"]
    assert [one["step"][0] for one in document["plan"]["admitted"]] == ["small"]
    assert [line[0] for line in document["plan"]["released"]] == ["ended"]
    assert [line[0] for line in document["plan"]["expired"]] == ["late"]
    assert list(differences(recording.plan, plan)) == []


def test_the_digest_depends_on_the_content_and_not_on_its_order() -> None:
    document = recorded()
    turned = {key: document[key] for key in reversed(document)}
    turned["snapshot"] = dict(reversed(document["snapshot"].items()))

    assert snapshot_digest(read_recording(turned).snapshot) == snapshot_digest(snapshot())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda doc: doc.update(kind="Plan"), "not a recorded pass"),
        (lambda doc: doc.update(apiVersion="v2"), "apiVersion"),
        (lambda doc: doc["snapshot"]["gathered"].update(now=1), "snapshot does not match"),
        (lambda doc: doc["plan"]["admitted"].clear(), "plan does not match"),
    ],
)
def test_a_changed_recording_is_refused(change: Any, message: str) -> None:
    document = recorded()

    change(document)

    with pytest.raises(ValueError, match=message):
        read_recording(document)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": "w"}, "missing"),
        ({"id": 1, "cluster_queue": "q", "pod_sets": []}, r"\.id: 1 does not fit"),
        ({"id": "w", "colour": "red"}, r"\.colour: unknown field"),
        ({"id": "w", "cluster_queue": "q", "pod_sets": {}}, r"\.pod_sets"),
        ({"id": "w", "cluster_queue": "q", "pod_sets": [], "checks": {"c": "Maybe"}}, "CheckState"),
        ({"id": "w", "cluster_queue": "q", "pod_sets": [], "preemptible": 1}, "preemptible"),
    ],
)
def test_a_value_that_does_not_fit_names_its_path(value: Json, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_plain(WorkloadInfo, value)


def test_fields_at_their_default_are_left_out() -> None:
    plain = to_plain(Assignment((Assigned("main", 1, {"cpu": "default"}),)))

    assert plain == {"pod_sets": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}}]}


def test_only_the_objects_of_one_root_are_recorded() -> None:
    parts = documents(
        cohort("root", cpu=3),
        queue("in", "root", cpu=1),
        queue("out", None, {"spot": {"cpu": 1}}),
        local_queue("ns/in", "in"),
        local_queue("ns/out", "out"),
    )
    objects = parse_objects(parts[:-1])
    catalog = QueueCatalog(
        flavors=objects.resource_flavors,
        cohorts=objects.cohorts,
        cluster_queues=objects.cluster_queues,
        local_queues=objects.local_queues,
    )

    below: ConfigObjects = objects_below(catalog, "root")

    assert [one.name for one in below.cluster_queues] == ["in"]
    assert [one.name for one in below.cohorts] == ["root"]
    assert [one.name for one in below.resource_flavors] == ["default"]
    assert [one.key for one in below.local_queues] == ["ns/in"]


def test_differences_are_told_in_words() -> None:
    old = {"admitted": [{"step": "a"}], "preempted": []}
    new = {"admitted": [{"step": "b"}], "preempted": [1]}

    assert list(differences(old, new)) == [
        "plan.admitted[0].step: recorded 'a', replayed 'b'",
        "plan.preempted[0]: recorded None, replayed 1",
    ]
    assert list(differences(old, old)) == []


def test_the_command_says_that_the_plan_came_out_again(tmp_path: Path) -> None:
    path = tmp_path / "pass.json"
    path.write_text(json.dumps(recorded()))

    result = CliRunner().invoke(sluice, ["replay", str(path)])

    assert result.exit_code == 0
    assert "same plan sha256:" in result.output


def test_the_command_names_the_differences(tmp_path: Path) -> None:
    # A pass that decided nothing is recorded for a snapshot in which somebody fits.
    path = tmp_path / "pass.json"
    path.write_text(record(snapshot(), CyclePlan((), (), (), {})).text)

    result = CliRunner().invoke(sluice, ["replay", str(path)])

    assert result.exit_code == 1
    assert "4 differences" in result.output
    assert "plan.admitted[0]: recorded None" in result.output


def test_the_command_refuses_what_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "pass.json"
    path.write_text('{"kind": "Job"}')

    result = CliRunner().invoke(sluice, ["replay", str(path)])

    assert result.exit_code == 5
