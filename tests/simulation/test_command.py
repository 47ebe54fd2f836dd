"""The command: forms of output, exit codes, several files, and errors that help."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from sluice.simulation.curve import Curve, blocks
from sluice.simulation.outcome import ProgressSample
from sluice.simulation.scenario import parse_scenario

from cli.main import sluice
from cli.simulation_progress import SimulationProgress
from tests.simulation.builders import Json, documents, preemption, queue, waiting
from tests.simulation.test_load import load

EXPECT_W = {"apiVersion": "sluice.dev/v1", "kind": "Expectation", "spec": {"admitted": {"w": {}}}}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(sluice, ["simulate", *map(str, arguments)])


def write(path: Path, parts: list[Json]) -> Path:
    path.write_text(yaml.safe_dump_all(parts), encoding="utf-8")
    return path


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    parts = documents(queue("q", cpu=1), waiting("w", "q", cpu=1) | {"runtime": "5s"}, passes=None)
    return write(tmp_path / "fine.yaml", [*parts, EXPECT_W])


@pytest.fixture
def different(tmp_path: Path) -> Path:
    parts = documents(queue("q", cpu=1), waiting("w", "q", cpu=2))
    return write(tmp_path / "different.yaml", [*parts, EXPECT_W])


@pytest.fixture
def invalid(tmp_path: Path) -> Path:
    parts = documents(queue("q", cpu=1), waiting("w", "nowhere", cpu=2))
    return write(tmp_path / "invalid.yaml", parts)


def test_json_is_the_published_format(fine: Path) -> None:
    result = invoke(fine, "-o", "json")

    answer = json.loads(result.output)
    assert result.exit_code == 0
    assert list(answer) == [
        "scenario", "passes", "virtualSeconds", "admitted", "preempted", "finished", "pending",
        "clusterQueues", "cohorts", "summary",
    ]  # fmt: skip
    assert answer["admitted"] == [
        {"workload": "w", "clusterQueue": "q", "at": 0.0,
         "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}}]}
    ]  # fmt: skip
    assert answer["finished"] == [{"workload": "w", "at": 5.0}]
    assert answer["clusterQueues"] == [
        {"name": "q", "usage": {"default": {"cpu": "0"}}, "available": {"default": {"cpu": "1"}},
         "potential": {"default": {"cpu": "1"}}, "share": {"value": 0, "resource": ""}}
    ]  # fmt: skip
    assert list(answer["summary"]) == [
        "workloads", "admissions", "preemptions", "makespanSeconds", "utilisation", "waitSeconds",
        "decisionCpuSeconds", "cpuSecondsPerAdmission", "peakPending",
    ]  # fmt: skip


def test_listed_scenarios_give_equal_bytes_and_timing_is_asked_for(fine: Path) -> None:
    first, second = invoke(fine, "-o", "json"), invoke(fine, "-o", "json")
    timed = json.loads(invoke(fine, "-o", "json", "--timing").output)

    assert first.output == second.output
    assert json.loads(first.output)["summary"]["decisionCpuSeconds"] == 0.0
    assert timed["summary"]["decisionCpuSeconds"] > 0.0


def test_loads_are_timed_unless_told_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "load.yaml", [load()])

    timed = json.loads(invoke(path, "-o", "json").output)
    plain = [invoke(path, "-o", "json", "--no-timing").output for _ in range(2)]

    assert timed["summary"]["cpuSecondsPerAdmission"] > 0.0
    assert plain[0] == plain[1]
    assert json.loads(plain[0])["summary"]["cpuSecondsPerAdmission"] == 0.0


def test_several_files_give_one_line_of_json_each(fine: Path, different: Path) -> None:
    result = invoke(fine, different, "-o", "json")

    assert result.exit_code == 0
    assert [len(json.loads(line)["admitted"]) for line in result.output.splitlines()] == [1, 0]


def test_a_dash_is_stdin(fine: Path) -> None:
    result = CliRunner().invoke(sluice, ["simulate", "-", "-o", "json"], input=fine.read_text())

    assert result.exit_code == 0
    assert json.loads(result.stdout)["summary"]["admissions"] == 1


def test_nobody_waits_for_passes_without_end(tmp_path: Path) -> None:
    parts = documents(queue("q", cpu=1), waiting("w", "q", cpu=1), passes=10**20)

    result = invoke(write(tmp_path / "many.yaml", parts))

    assert result.exit_code == 5
    assert "the most is 100000" in result.stderr


def test_check_tells_differences_and_fails(fine: Path, different: Path) -> None:
    result = invoke("--check", fine, different)

    assert result.exit_code == 1
    assert f"{fine}: as expected" in result.output
    assert f"{different}: 1 difference\n" in result.output
    assert "1 of 2 files as expected" in result.output
    assert "  admitted: w is expected, but was not admitted" in result.output


def test_check_leaves_stdout_to_the_json(different: Path) -> None:
    result = invoke("--check", different, "-o", "json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["pending"][0]["workload"] == "w"
    assert "admitted: w is expected" in result.stderr


def test_without_check_the_expectation_is_ignored(different: Path) -> None:
    assert invoke(different).exit_code == 0


def test_an_invalid_file_is_refused_with_every_flaw_and_the_others_still_run(
    invalid: Path, fine: Path
) -> None:
    result = invoke(invalid, fine)

    assert result.exit_code == 5
    assert "document 3 (Scenario case): spec.workloads[0].clusterQueue" in result.stderr
    assert "there is no ClusterQueue 'nowhere'; known: q" in result.stderr
    assert "1 admissions" in result.stdout


def test_an_empty_file_is_wrong_usage_and_the_others_still_run(tmp_path: Path, fine: Path) -> None:
    empty = tmp_path / "empty.yaml"
    for text in ("", "# nothing yet\n---\n"):
        empty.write_text(text, encoding="utf-8")

        result = invoke(empty, fine)

        assert result.exit_code == 2
        assert f"error: {empty} is empty\nhint: write queues and a Scenario" in result.stderr
        assert "1 admissions" in result.stdout


def test_checking_without_an_expectation_is_wrong_usage(tmp_path: Path, fine: Path) -> None:
    parts = documents(queue("q", cpu=1), waiting("w", "q", cpu=1))
    bare = write(tmp_path / "bare.yaml", parts)

    result = invoke("--check", bare, fine)

    assert result.exit_code == 2
    assert f"{bare} has no Expectation, so there is nothing to check" in result.stderr
    assert "1 of 2 files as expected" in result.stdout
    assert invoke(bare).exit_code == 0


def test_what_is_not_yaml_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("kind: Scenario\nkind: Load\n", encoding="utf-8")

    result = invoke(path)

    assert result.exit_code == 5
    assert "line 2, column 1: the key 'kind' occurs twice" in result.stderr


def test_what_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"kind: Scenario\n# \xe9\n")

    result = invoke(path)

    assert result.exit_code == 5
    assert "line 2 is not UTF-8" in result.stderr


def test_a_document_that_is_no_map_is_named(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("[]\n", encoding="utf-8")

    assert "  document 1: must be a map, not a list\n" in invoke(path).stderr


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    assert invoke(tmp_path / "none.yaml").exit_code == 2
    assert invoke().exit_code == 2


def test_durations_of_flags_are_kubernetes_durations(fine: Path) -> None:
    late = json.loads(invoke(fine, "-o", "json", "--commit-latency", "30ms").output)
    cut = json.loads(invoke(fine, "-o", "json", "--until", "2s").output)

    assert late["admitted"][0]["at"] == 0.03
    assert cut["virtualSeconds"] == 2.0
    assert invoke(fine, "--until", "soon").exit_code == 2


def test_the_table_shows_counts_a_plot_and_the_waits(fine: Path) -> None:
    result = invoke(fine)

    assert "case: 1 workloads, 1 admissions, 0 preemptions, 1 finished, 0 waiting" in result.output
    assert f"cpu     │{'█' * 60}│ 100.0% useful" in result.output
    assert "1 x main on default" in result.output


def test_the_table_tells_what_happened_in_the_order_of_time(tmp_path: Path) -> None:
    rules = preemption(within="LowerPriority")
    low = waiting("low", "q", cpu=1, runtime="1m")
    high = waiting("high", "q", 1, cpu=1, runtime="1m", arrivesAfter="10s")
    parts = documents(queue("q", cpu=1, spec=rules), low, high, passes=None)

    table = invoke(write(tmp_path / "two.yaml", parts)).output

    told = [line.split() for line in table.splitlines() if " q " in line and " s " in line]
    assert [(line[0], line[2], line[3]) for line in told] == [
        ("low", "admitted", "0"),
        ("low", "preempted", "10"),
        ("high", "admitted", "10"),
        ("low", "admitted", "70"),
    ]


def test_a_curve_keeps_its_area_when_it_is_thinned() -> None:
    curve = Curve()
    for at_ms in range(20_000):
        curve.step(at_ms, at_ms % 2)

    assert len(curve.steps) <= 4096
    assert curve.averages(20_000, 4) == pytest.approx([0.5] * 4, abs=0.01)


def test_averages_are_weighted_by_time() -> None:
    curve = Curve()
    for at_ms, value in ((0, 4), (25, 0), (100, 8)):
        curve.step(at_ms, value)

    assert curve.averages(200, 4) == [2.0, 0.0, 8.0, 8.0]
    assert Curve().averages(100, 4) == []


def test_bars_never_hide_what_is_there() -> None:
    assert blocks([0, 1, 50, 100, 200], 100) == " ▁▄██"
    assert blocks([1, 2], 0) == "  "


def test_progress_is_told_only_when_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 1.0, 3.0, 3.1, 14.0])
    scenario = parse_scenario(documents(queue("q", cpu=1), waiting("w", "q", cpu=1)), "x")
    progress = SimulationProgress(scenario, clock=lambda: next(seconds))

    for number in range(4 * 64):
        progress(ProgressSample(number, 1, 7, {"cpu": 1}))

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "case: 0.1 s of virtual time, 1 of 1 admitted, 7 waiting",
        "case: 0.3 s of virtual time, 1 of 1 admitted, 7 waiting",
    ]
