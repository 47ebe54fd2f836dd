"""How the local stack runs the CDK, with a program that only notes down how it was called."""

import json
from pathlib import Path

import pytest

from local.cdk import Cdk, DeployError

NODE = """#!/bin/sh
echo "$@" >> "$CDK_HOME/calls"
env | grep -E '^(AWS_|CDK_HOME)' | sort > "$CDK_HOME/environment"
echo the app complains
exit ${FAIL:-0}
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    for folder in ("infra", "functions", "layers", "requirements"):
        (root / folder).mkdir(parents=True)
    for name in ("app.py", "cdk.json", "package-lock.json", "requirements.txt"):
        (root / name).write_text("x")
    (root / "requirements" / "layer.txt").write_text("x")
    (root / "infra" / "state.py").write_text("x = 1\n")
    (root / "package.json").write_text(json.dumps({"devDependencies": {"aws-cdk": "2.0.0"}}))
    return root


@pytest.fixture
def cdk(tmp_path: Path, clone: Path) -> Cdk:
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text(NODE)
    node.chmod(0o755)
    endpoints = {
        "aws": "http://127.0.0.1:4566",
        "region": "us-east-1",
        "account": "123456789012",
        "access_key_id": "AKIALOCAL",
        "secret_access_key": "secret",
        "state": str(tmp_path / "state"),
        "path": str(node.parent),
    }
    found = Cdk(endpoints, clone=clone)
    found.configuration.write_text("name: sluice\n")
    return found


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "state" / "cdk" / "calls").read_text().splitlines()


def test_what_is_synthesized_is_not_synthesized_again(cdk: Cdk) -> None:
    assert not cdk.is_synthesized()

    cdk.synthesize()

    assert cdk.is_synthesized()


@pytest.mark.parametrize("changed", ["infra/state.py", "functions/new.py", "requirements.txt"])
def test_a_changed_source_is_synthesized_again(cdk: Cdk, clone: Path, changed: str) -> None:
    cdk.synthesize()

    (clone / changed).write_text("x = 2\n")

    assert not cdk.is_synthesized()


def test_a_changed_configuration_is_synthesized_again(cdk: Cdk) -> None:
    cdk.synthesize()

    cdk.configuration.write_text("name: other\n")

    assert not cdk.is_synthesized()


def test_bytecode_changes_nothing(cdk: Cdk, clone: Path) -> None:
    cdk.synthesize()

    (clone / "infra" / "__pycache__").mkdir()
    (clone / "infra" / "__pycache__" / "state.pyc").write_bytes(b"x")

    assert cdk.is_synthesized()


def test_a_failure_tells_what_the_cdk_said_and_where_the_rest_is(
    cdk: Cdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "1")

    with pytest.raises(DeployError, match=r"(?s)cdk\.log.*the app complains"):
        cdk.synthesize()

    assert not cdk.is_synthesized()
    assert "the app complains" in (tmp_path / "state" / "logs" / "cdk.log").read_text()


def test_the_cdk_talks_to_the_embedded_aws_alone(
    cdk: Cdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://elsewhere")

    cdk.deploy()

    environment = (tmp_path / "state" / "cdk" / "environment").read_text().splitlines()
    assert environment == [
        "AWS_ACCESS_KEY_ID=AKIALOCAL",
        "AWS_DEFAULT_REGION=us-east-1",
        "AWS_EC2_METADATA_DISABLED=true",
        "AWS_ENDPOINT_URL=http://127.0.0.1:4566",
        "AWS_REGION=us-east-1",
        "AWS_SECRET_ACCESS_KEY=secret",
        f"CDK_HOME={tmp_path / 'state' / 'cdk'}",
    ]
    assert "deploy --all --require-approval never" in calls(tmp_path)[0]


def test_a_missing_cdk_is_installed_from_the_lock(cdk: Cdk, tmp_path: Path, clone: Path) -> None:
    cdk.install()
    (clone / "node_modules" / "aws-cdk").mkdir(parents=True)
    (clone / "node_modules" / "aws-cdk" / "package.json").write_text('{"version": "2.0.0"}')
    cdk.install()

    (call,) = calls(tmp_path)
    assert call.endswith("npm-cli.js ci --no-audit --no-fund")
