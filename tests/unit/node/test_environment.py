"""Environment of a container: expansion, quantities, the downward API, missing sources."""

from decimal import Decimal
from typing import Any

import pytest

from local.node.environment import (
    ConfigMissingError,
    FieldUnknownError,
    container_environment,
    expand,
    field,
    quantity,
    resource,
    sources_of,
)

POD: dict[str, Any] = {
    "metadata": {
        "name": "job-1",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"b": "2", "a": "1"},
        "annotations": {"note": 'say "hi"'},
    },
    "spec": {"nodeName": "node-1"},
}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)/$(B)", "1/2"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$", "$"),
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("$(A)$(A)", "11"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


@pytest.mark.parametrize(
    ("text", "value"),
    [("250m", "0.25"), ("2", "2"), ("1Ki", "1024"), ("1.5Gi", "1610612736"), ("3k", "3000")],
)
def test_quantities_in_base_units(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


def test_nonsense_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="12 apples"):
        quantity("12 apples")


def test_resources_round_up_and_missing_limits_are_the_nodes() -> None:
    container = {"resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}}
    node = {"cpu": "3920m"}

    assert resource(container, {"resource": "requests.cpu"}, node) == "1"
    assert resource(container, {"resource": "requests.cpu", "divisor": "1m"}, node) == "250"
    assert resource(container, {"resource": "limits.memory", "divisor": "1Mi"}, node) == "1024"
    assert resource(container, {"resource": "limits.cpu"}, node) == "4"
    assert resource(container, {"resource": "requests.memory"}, node) == "0"


def test_fields_of_the_pod() -> None:
    assert field(POD, "metadata.uid") == "u-1"
    assert field(POD, "metadata.labels['a']") == "1"
    assert field(POD, "metadata.labels['none']") == ""
    assert field(POD, "metadata.labels") == 'a="1"\nb="2"'
    assert field(POD, "metadata.annotations") == 'note="say \\"hi\\""'
    with pytest.raises(FieldUnknownError):
        field(POD, "spec.containers")


def test_later_variables_see_earlier_ones_and_override_env_from() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "S_", "secretRef": {"name": "s"}}],
        "env": [
            {"name": "FIRST", "value": "$(base)"},
            {"name": "SECOND", "value": "$(FIRST)/$(THIRD)/$(S_key)"},
            {"name": "THIRD", "value": "3"},
            {"name": "base", "value": "mine"},
        ],
    }
    sources = {("ConfigMap", "c"): {"base": "theirs"}, ("Secret", "s"): {"key": "k"}}

    assert sources_of(container) == set(sources)
    assert container_environment(POD, container, sources, {}) == {
        "S_key": "k",
        "FIRST": "theirs",
        "SECOND": "theirs/$(THIRD)/k",
        "THIRD": "3",
        "base": "mine",
    }


@pytest.mark.parametrize(
    "container",
    [
        {"envFrom": [{"secretRef": {"name": "s"}}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    ],
)
def test_a_missing_source_is_named(container: dict[str, Any]) -> None:
    with pytest.raises(ConfigMissingError, match="Secret 's'"):
        container_environment(POD, container, {("Secret", "s"): None}, {})


def test_a_missing_optional_key_is_no_variable() -> None:
    reference = {"name": "s", "key": "k", "optional": True}
    container = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": reference}}]}

    assert container_environment(POD, container, {("Secret", "s"): {}}, {}) == {}
