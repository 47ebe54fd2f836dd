"""A recorded pass can be told apart from a changed one, and gives the same plan again."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sluice.core.catalog import Catalog
from sluice.core.model import (
    AdmissionFairSharing,
    Assignment,
    Holding,
    PodSetAssignment,
    Policy,
    Workload,
)
from sluice.core.objects import ConfigObjects, parse_objects
from sluice.core.plain import canonical, from_plain, to_plain
from sluice.core.recording import (
    Consumed,
    Snapshot,
    decide,
    first_difference,
    objects_below,
    plain_plan,
    plan_digest,
    read_recording,
    record,
    snapshot_digest,
)
from sluice.simulation.scenario import parse_scenario

from cli.main import sluice
from tests.simulation.builders import (
    Json,
    cohort,
    documents,
    local_queue,
    preemption,
    queue,
    running,
    waiting,
)


def snapshot() -> Snapshot:
    """One queue in which high evicts low, and small is admitted."""
    scenario = parse_scenario(
        documents(
            queue("q", "team", cpu=(4, 2), spec=preemption("LowerPriority", "Any")),
            queue("p", "team", cpu=2),
            local_queue("ns/l", "p"),
            running("low", "q", -1, cpu=4),
            waiting("high", "q", 5, cpu=4),
            waiting("small", "ns/l", 0, count=4, minCount=1, cpu=1),
        ),
        "case",
    )
    return Snapshot(
        root="team",
        now_ms=scenario.start_ms,
        policy=Policy(admission_fair_sharing=AdmissionFairSharing(10_000)),
        objects=scenario.objects,
        holdings=tuple(
            Holding(job.workload, job.holds.assignment, job.holds.since_ms)
            for job in scenario.jobs
            if job.holds
        ),
        waiting=tuple(job.workload for job in scenario.jobs if not job.holds),
        consumed={"ns/l": Consumed({"cpu": 1500.5}, 7)},
    )


def recorded() -> Json:
    one = snapshot()
    return record(one, decide(one))


def test_a_snapshot_survives_the_way_through_json() -> None:
    one = snapshot()

    again = from_plain(Snapshot, json.loads(canonical(to_plain(one))))

    assert again == one
    assert snapshot_digest(again) == snapshot_digest(one)


def test_a_recording_gives_the_same_plan_again() -> None:
    document = json.loads(json.dumps(recorded()))

    recording = read_recording(document)
    plan = decide(recording.snapshot)

    assert [one["victim"] for one in document["plan"]["preemptions"]] == ["low"]
    assert [one["workload"] for one in document["plan"]["admissions"]] == ["small"]
    assert first_difference(recording.plan, plain_plan(plan)) is None
    assert plan_digest(plan) == document["planDigest"]


def test_the_digest_depends_on_the_content_and_not_on_its_order() -> None:
    document = recorded()
    turned = {key: document[key] for key in reversed(document)}
    turned["snapshot"] = dict(reversed(document["snapshot"].items()))

    assert read_recording(turned).snapshot == snapshot()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda doc: doc.update(kind="Plan"), "not a recorded pass"),
        (lambda doc: doc.update(apiVersion="v2"), "apiVersion"),
        (lambda doc: doc["snapshot"].update(now_ms=1), "snapshot does not match"),
        (lambda doc: doc["plan"]["admissions"].clear(), "plan does not match"),
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
        from_plain(Workload, value)


def test_fields_at_their_default_are_left_out() -> None:
    plain = to_plain(Assignment((PodSetAssignment("main", 1, {"cpu": "default"}),)))

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
    catalog = Catalog(
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


def test_the_first_difference_is_told_in_words() -> None:
    old = {"admissions": [{"workload": "a"}], "preemptions": []}
    new = {"admissions": [{"workload": "b"}], "preemptions": []}

    assert first_difference(old, new) == "plan.admissions[0].workload: recorded 'a', replayed 'b'"
    assert first_difference(old, {**old, "admissions": []}) is not None
    assert first_difference(old, old) is None


def test_the_command_says_that_the_plan_came_out_again(tmp_path: Path) -> None:
    path = tmp_path / "pass.json"
    path.write_text(json.dumps(recorded()))

    result = CliRunner().invoke(sluice, ["replay", str(path)])

    assert result.exit_code == 0
    assert "same plan sha256:" in result.output


def test_the_command_names_the_first_difference(tmp_path: Path) -> None:
    # A pass that admitted nobody is recorded for a snapshot in which somebody fits.
    one = snapshot()
    nothing = decide(Snapshot(one.root, one.now_ms, one.policy, one.objects))
    path = tmp_path / "pass.json"
    path.write_text(json.dumps(record(one, nothing)))

    result = CliRunner().invoke(sluice, ["replay", str(path)])

    assert result.exit_code == 1
    assert "plan.admissions[0]: recorded None" in result.output


def test_the_command_refuses_what_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "pass.json"
    path.write_text('{"kind": "Job"}')

    result = CliRunner().invoke(sluice, ["replay", str(path)])

    assert result.exit_code == 5
