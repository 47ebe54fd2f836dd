"""Every suite of this folder runs twice: on the fakes of the unit tests, and on real adapters."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from sluice.adapters.dynamodb_answers import take_as_they_come

from local import aws
from local.certificates import make_certificates
from local.control_plane import authority_data
from local.endpoints import Endpoints
from local.ports import choose_ports
from local.settings import Layout, Settings, default_cache
from local.strays import MARK, kill_marked
from local.toolchain import environment
from tests.contract.aws.ports import Ports, in_memory, on_aws

START_SECONDS = 60.0


@pytest.fixture(params=["memory", pytest.param("aws", marks=pytest.mark.stack)])
def ports(request: pytest.FixtureRequest) -> Ports:
    if request.param == "memory":
        return in_memory()
    session: tuple[boto3.Session, str] = request.getfixturevalue("emulator")
    dynamodb, s3 = (session[0].client(name, endpoint_url=session[1]) for name in ("dynamodb", "s3"))  # type: ignore[call-overload]
    take_as_they_come(dynamodb)
    return on_aws(dynamodb, s3)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """MiniStack alone, behind our launcher: a session of its owner, and its address."""
    state = tmp_path_factory.mktemp("ports")
    layout, settings = Layout(state), Settings(state, default_cache())
    ports = choose_ports(layout.ports, ["aws", "registry"], {})
    make_certificates(layout.certs)
    endpoints = Endpoints(
        aws=f"http://127.0.0.1:{ports['aws']}",
        ec2="http://127.0.0.1:9",
        region="us-east-1",
        account="123456789012",
        access_key_id="AKIASLUICEPORTS00001",
        secret_access_key="secret",
        kubeconfig="",
        cluster_name="batch-1",
        cluster_endpoint="https://127.0.0.1:9",
        certificate_authority=authority_data(layout),
        state=str(state),
        path=os.environ["PATH"],
    )
    python = environment(settings.cache, "ministack", print) / "bin" / "python"
    part = aws.ministack(settings, endpoints, ports, python)
    variables = aws.base_environment(endpoints) | part.environment | {MARK: str(state)}
    with (state / "aws.log").open("w") as log:
        process = subprocess.Popen(part.command, env=variables, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while part.health is None or not part.health.is_good():
            assert time.monotonic() < deadline, (state / "aws.log").read_text()
            time.sleep(0.1)
        session = boto3.Session(
            endpoints.access_key_id, endpoints.secret_access_key, region_name=endpoints.region
        )
        yield session, endpoints.aws
    finally:
        process.kill()
        process.wait()
        kill_marked(state)
