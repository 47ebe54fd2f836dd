"""Functions in a VPC, as the setting `network` says."""

from __future__ import annotations

import pytest
from sluice.configuration import ConfigurationError, parse

from tests.unit.infra.conftest import SETTINGS, Assembly, synthesize
from tests.unit.infra.test_functions import functions, statements

SUBNETS = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
GROUPS = ["sg-0123456789abcdef0"]
NETWORK = {"subnets": SUBNETS, "securityGroups": GROUPS}


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesize(SETTINGS | {"network": NETWORK}, tmp_path_factory.mktemp("cdk.out"))


def test_every_function_runs_in_the_subnets_and_groups(inside: Assembly) -> None:
    for function in functions(inside).values():
        assert function["VpcConfig"] == {"SubnetIds": SUBNETS, "SecurityGroupIds": GROUPS}


def test_lambda_makes_the_interfaces_and_the_code_cannot(inside: Assembly) -> None:
    for role, found in statements(inside).items():
        allowed, denied = (
            [
                statement
                for statement in found
                if "ec2:CreateNetworkInterface" in statement["Action"]
                and statement["Effect"] == effect
            ]
            for effect in ("Allow", "Deny")
        )
        assert len(allowed) == len(denied), role
        for statement in denied:
            assert "lambda:SourceFunctionArn" in statement["Condition"]["ArnLike"]
    with_interfaces = [
        role for role, found in statements(inside).items() if "NetworkInterface" in str(found)
    ]
    assert len(with_interfaces) == len(functions(inside))


def test_without_the_setting_functions_stay_outside(assembly: Assembly) -> None:
    assert not [each for each in functions(assembly).values() if "VpcConfig" in each]
    assert "NetworkInterface" not in str(statements(assembly))


@pytest.mark.parametrize(
    "network", [{"subnets": SUBNETS}, {"subnets": [], "securityGroups": GROUPS}, {}]
)
def test_a_network_has_subnets_and_groups(network: dict[str, list[str]]) -> None:
    with pytest.raises(ConfigurationError, match="network"):
        parse({"network": network})


def test_cdk_nag_finds_nothing_that_is_not_explained(inside: Assembly) -> None:
    (report,) = [r for r in inside.report()["pluginReports"] if r["pluginName"] == "AwsSolutions"]

    assert report["violations"] == []
