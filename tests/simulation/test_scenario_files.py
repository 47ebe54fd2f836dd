"""Every scenario file in this folder, and every example, gives what its Expectation says."""

from pathlib import Path

import pytest
from sluice.client.yaml_stream import parse_yaml
from sluice.simulation.engine import Simulation
from sluice.simulation.expectation import differences
from sluice.simulation.report import report
from sluice.simulation.scenario import Scenario, parse_scenario

HERE = Path(__file__).parent
FILES = sorted((HERE / "scenarios").glob("*.yaml"))
EXAMPLES = HERE.parents[1] / "examples" / "scenarios"


def read(path: Path) -> Scenario:
    return parse_scenario(parse_yaml(path.read_text(encoding="utf-8")), path.stem)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_outcome_is_the_expected_one(path: Path) -> None:
    scenario = read(path)

    outcome = Simulation(scenario).run()

    assert scenario.expectation is not None
    assert list(differences(scenario.expectation, report(scenario, outcome))) == []


def test_the_example_of_three_jobs_gives_what_its_expectation_says() -> None:
    scenario = read(EXAMPLES / "three-jobs-64-cores.yaml")

    outcome = Simulation(scenario).run()

    assert scenario.expectation is not None
    assert list(differences(scenario.expectation, report(scenario, outcome))) == []


def test_all_scenario_files_are_here() -> None:
    assert len(FILES) >= 37


def test_the_documented_example_gives_what_its_expectation_says() -> None:
    page = (HERE.parents[1] / "docs" / "simulate.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    scenario = parse_scenario(parse_yaml(example), "documented")

    outcome = Simulation(scenario).run()

    assert scenario.expectation is not None
    assert list(differences(scenario.expectation, report(scenario, outcome))) == []
