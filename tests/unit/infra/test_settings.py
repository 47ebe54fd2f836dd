"""Other settings than those of the shared assembly: defaults, and what a local deploy changes."""

from pathlib import Path
from typing import Any

import pytest
from sluice.configuration import Runtime

from infra.code import require_matching_interpreter
from tests.unit.infra.conftest import Assembly, synthesize


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    settings: dict[str, Any] = {
        "name": "mine",
        "region": "eu-west-1",
        "runtime": {"architecture": "x86_64"},
        "state": {"retain": False},
        "events": {"omit": ["Dispatched", "QuotaReleased"]},
    }
    return synthesize(settings, tmp_path_factory.mktemp("local"))


def test_without_retention_everything_goes_with_the_stack(local: Assembly) -> None:
    resources = local.template("State")["Resources"].values()
    tables = [each for each in resources if each["Type"] == "AWS::DynamoDB::GlobalTable"]

    assert {each.get("DeletionPolicy", "Delete") for each in resources} == {"Delete"}
    for table in tables:
        (replica,) = table["Properties"]["Replicas"]
        assert replica.get("DeletionProtectionEnabled", False) is False
        assert "WarmThroughput" not in table["Properties"]


def test_what_nobody_listens_to_is_known_to_the_one_who_publishes(local: Assembly) -> None:
    omitted = {
        name: each["Environment"]["Variables"]["SLUICE_EVENTS_OMITTED"]
        for name, each in local.resources("Control", "AWS::Lambda::Function").items()
        if "SLUICE_EVENTS_OMITTED" in each["Environment"]["Variables"]
    }

    assert list(omitted.values()) == ["Dispatched,QuotaReleased"]
    assert next(iter(omitted)).startswith("Relay")


def test_functions_run_on_the_chosen_architecture(local: Assembly) -> None:
    functions = local.resources("Control", "AWS::Lambda::Function").values()

    assert {each["Architectures"][0] for each in functions} == {"x86_64"}
    assert {each["TracingConfig"]["Mode"] for each in functions} == {"PassThrough"}


def test_without_listed_principals_policies_of_the_account_decide(local: Assembly) -> None:
    policies = local.resources("Control", "AWS::SQS::QueuePolicy")
    (policy,) = [each for name, each in policies.items() if name.startswith("QueuesSubmissionsP")]
    sids = {each.get("Sid") for each in policy["PolicyDocument"]["Statement"]}

    assert sids == {None, "NoServices"}


def test_two_deployments_share_no_fixed_name(local: Assembly, assembly: Assembly) -> None:
    def names(of: Assembly) -> set[str]:
        parameters = of.resources("Control", "AWS::SSM::Parameter").values()
        (bus,) = of.resources("Control", "AWS::Events::EventBus").values()
        return {*(each["Name"] for each in parameters), bus["Name"]}

    assert not names(local) & names(assembly)


def test_without_clusters_nothing_is_observed_and_nothing_entered(local: Assembly) -> None:
    schedules = local.resources("Control", "AWS::Scheduler::Schedule")

    assert not [name for name in schedules if "Observe" in name]
    assert not list(Path(local.folder).glob("ClusterAccess*"))


def test_an_interpreter_that_cannot_compile_for_the_runtime_is_refused() -> None:
    with pytest.raises(ValueError, match=r"runtime\.python: this is Python .* set it to"):
        require_matching_interpreter(Runtime(python="3.10"))
