from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from sluice.configuration import (
    ClusterSettings,
    Configuration,
    ConfigurationError,
    WarmThroughput,
    load,
    parse,
    schema,
)

from tests.unit.infra.conftest import CLONE


def test_the_published_example_is_the_default() -> None:
    assert load(CLONE / "sluice.yaml") == Configuration()


def test_a_missing_or_empty_file_means_defaults(tmp_path: Path) -> None:
    empty = tmp_path / "sluice.yaml"
    empty.write_text("# nothing yet\n")

    assert load(tmp_path / "absent.yaml") == load(empty) == Configuration()


def test_every_setting_arrives() -> None:
    found = parse(
        {
            "name": "batch",
            "region": "eu-west-1",
            "runtime": {"python": "3.13", "architecture": "x86_64"},
            "state": {"warmThroughput": {"reads": 13000, "writes": 5000}},
            "observability": {"logLevel": "DEBUG", "logRetentionDays": 7, "tracing": True},
            "submissions": {"organization": "o-abcdefghij", "manifestBuckets": ["manifests"]},
            "events": {"omit": ["Dispatched", "QuotaReleased"]},
            "clusters": [{"name": "a", "namespaces": ["x", "y"]}],
        }
    )

    assert (found.name, found.region, found.parameter_prefix) == ("batch", "eu-west-1", "/batch")
    assert (found.runtime.python, found.runtime.architecture) == ("3.13", "x86_64")
    assert found.state.warm_throughput == WarmThroughput(reads=13000, writes=5000)
    assert found.observability.log_level == "DEBUG"
    assert found.observability.log_retention_days == 7
    assert found.observability.tracing is True
    assert found.submissions.organization == "o-abcdefghij"
    assert found.submissions.manifest_buckets == ("manifests",)
    assert found.events.omit == ("Dispatched", "QuotaReleased")
    assert found.clusters == (ClusterSettings(name="a", namespaces=("x", "y")),)


def test_what_is_not_kept_is_not_protected() -> None:
    assert parse({"state": {"retain": False}}).state.deletion_protection is False


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "(file): must be of type object"),
        ({"cluster": []}, "(file): remove cluster; known here: clusters,"),
        ({"events": {"omit": ["Failed"]}}, "events.omit.0: use one of Submitted, Admitted,"),
        ({"state": {"keep": True}}, "state: remove keep; known here:"),
        ({"name": "1st"}, "name: '1st' must match"),
        ({"runtime": {"python": 3.13}}, "runtime.python: use one of 3.11, 3.12, 3.13, 3.14"),
        ({"runtime": {"architecture": "arm"}}, "runtime.architecture: use one of arm64, x86_64"),
        ({"state": {"retain": "no"}}, "state.retain: must be of type boolean, not 'no'"),
        ({"clusters": [{"name": "a", "namespaces": []}]}, "clusters.0.namespaces: "),
        ({"clusters": [{}]}, "clusters.0: 'name' is a required property"),
        ({"clusters": [{"name": "a"}, {"name": "a"}]}, "clusters: name a only once"),
        (
            {"state": {"retain": False, "deletionProtection": True}},
            "state.deletionProtection: set it to false, or state.retain to true",
        ),
        (
            {"submissions": {"principals": ["*"]}},
            "submissions.principals.0: '*' must match",
        ),
    ],
)
def test_a_problem_names_its_field_and_what_to_change(document: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(document)

    assert any(each.startswith(problem) for each in caught.value.problems)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({"name": "1st", "state": {"retain": "no"}})

    assert len(caught.value.problems) == 2


def test_a_file_that_is_no_yaml_says_so(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("clusters: [")

    with pytest.raises(ConfigurationError, match=r"\(file\): correct the YAML"):
        load(path)


def test_no_setting_can_give_a_deployment_an_identity_or_an_endpoint() -> None:
    """What only a development machine needs must be unthinkable in a deployed stack."""
    names = set()

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            names.update(node.get("properties", {}))
            for each in node.values():
                collect(each)

    collect(schema())

    forbidden = ("identity", "sender", "endpoint", "development", "insecure")
    assert not [name for name in names if any(word in name.lower() for word in forbidden)]


def test_the_schema_is_a_schema_and_its_defaults_are_ours() -> None:
    Draft202012Validator.check_schema(schema())
    ours = Configuration()

    sections = schema()["properties"]
    assert sections["name"]["default"] == ours.name
    assert sections["runtime"]["properties"]["architecture"]["default"] == ours.runtime.architecture
    state = sections["state"]["properties"]
    assert state["retain"]["default"] is ours.state.retain
    assert state["deletionProtection"]["default"] is ours.state.deletion_protection
    observability = sections["observability"]["properties"]
    assert observability["logLevel"]["default"] == ours.observability.log_level
    assert observability["logRetentionDays"]["default"] == ours.observability.log_retention_days
    assert observability["tracing"]["default"] is ours.observability.tracing
