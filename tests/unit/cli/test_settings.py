"""Which deployment a command speaks to, and why."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from sluice.client.aws import reachable
from sluice.client.errors import SluiceClientError
from sluice.client.settings import discover


@pytest.fixture
def listening() -> Iterator[str]:
    """Something that answers on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def embedded_stack(folder: Path, endpoint: str) -> None:
    state = folder / ".local"
    state.mkdir()
    keys = {"access_key_id": "AKLOCAL", "secret_access_key": "secret"}
    endpoints = {"aws": endpoint, "region": "us-east-1", **keys}
    (state / "endpoints.json").write_text(json.dumps(endpoints))
    (state / "outputs.json").write_text(json.dumps({"api": "https://u.lambda-url.x.on.aws/"}))


@pytest.mark.enable_socket
def test_an_embedded_stack_that_answers_is_taken_also_from_a_subfolder(
    tmp_path: Path, listening: str
) -> None:
    embedded_stack(tmp_path, listening)
    below = tmp_path / "examples"
    below.mkdir()

    settings = discover(environment={"AWS_REGION": "eu-west-1"}, folder=below)

    assert settings.endpoint_url.value == listening
    assert settings.region.value == "us-east-1"
    assert settings.keys is not None
    assert settings.keys.access_key == "AKLOCAL"
    assert settings.published["api"].value == "https://u.lambda-url.x.on.aws/"
    assert ".local" in settings.endpoint_url.source
    assert "secret" not in repr(settings)


@pytest.mark.enable_socket
def test_what_a_crash_left_behind_is_not_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    embedded_stack(tmp_path, endpoint)

    settings = discover(environment={}, folder=tmp_path)

    assert settings.keys is None
    assert settings.endpoint_url.value == ""
    assert settings.silent_stack == str(tmp_path / ".local")


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    "environment", [{"SLUICE_PROFILE": "work"}, {"AWS_ENDPOINT_URL": "http://elsewhere:1"}]
)
def test_a_profile_or_another_endpoint_means_not_the_embedded_stack(
    tmp_path: Path, listening: str, environment: dict[str, str]
) -> None:
    embedded_stack(tmp_path, listening)

    assert discover(environment=environment, folder=tmp_path).keys is None
    assert discover(profile="work", environment={}, folder=tmp_path).keys is None


def test_the_file_names_the_deployment_and_variables_override_its_parts(tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text(
        yaml.safe_dump({"name": "blue", "region": "eu-west-1", "clusters": [{"name": "c"}]})
    )

    settings = discover(environment={"SLUICE_API_URL": "https://a"}, folder=tmp_path)
    flagged = discover(
        api_url="https://b", environment={"SLUICE_API_URL": "https://a"}, folder=tmp_path
    )

    assert (settings.name.value, settings.region.value) == ("blue", "eu-west-1")
    assert settings.published["api"].source == "environment variable SLUICE_API_URL"
    assert flagged.published["api"].value == "https://b"
    assert settings.clusters == ("c",)


def test_a_wrong_file_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text("nam: blue\n")

    with pytest.raises(SluiceClientError, match="nam"):
        discover(environment={}, folder=tmp_path)


def test_a_function_url_is_reached_below_the_emulators_own_address() -> None:
    url = "https://abc123.lambda-url.us-east-1.on.aws/"

    assert reachable(url, "") == url.rstrip("/")
    assert reachable(url, "http://127.0.0.1:4566") == (
        "http://127.0.0.1:4566/_aws/lambda-url/abc123"
    )
    assert reachable("http://127.0.0.1:9/x", "http://127.0.0.1:4566") == "http://127.0.0.1:9/x"
