"""The client against the control plane in this process."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sluice.client
from sluice.client import (
    AmbiguousNameError,
    AsyncClient,
    Client,
    Connection,
    ExitCode,
    IdempotencyKeyReusedError,
    ObjectNotFoundError,
    RequestRefusedError,
    WorkloadNotFoundError,
    WorkloadOutcomeError,
)
from sluice.client.api import ApiClient
from sluice.client.sender import SubmissionMessage
from sluice.client.transport import ApiRequest, ApiResponse

from tests.unit.api.control_plane import BLUE, RED, ControlPlane, Signer, native

IMPORT_SECONDS = 0.15


def connected(plane: ControlPlane, signer: Signer = RED) -> Connection:
    """A connection to a control plane in this process."""

    def carry(request: ApiRequest) -> ApiResponse:
        path = "/" + "/".join(segment.replace("/", "%2F") for segment in request.path)
        query = dict(request.query) or None
        return ApiResponse(*plane.call(request.method, path, signer, request.body, query))

    def deliver(messages: Sequence[SubmissionMessage]) -> None:
        for message in messages:
            plane.clock.pass_ms(1_000)
            plane.deliver(message.body, signer)

    def sleep(seconds: float) -> None:
        plane.clock.pass_ms(int(seconds * 1_000))

    connection = Connection(now=lambda: plane.clock.now() / 1_000, sleep=sleep)
    connection.__dict__["api"] = ApiClient(carry)
    connection.__dict__["sender"] = lambda _: deliver
    return connection


@pytest.fixture
def plane() -> ControlPlane:
    return ControlPlane()


@pytest.fixture
def client(plane: ControlPlane) -> Client:
    return Client(connection=connected(plane))


def test_a_submitted_document_is_a_workload_with_typed_fields(client: Client) -> None:
    submitted = client.submit(native("train", 4))

    status = client.get(submitted.id)

    assert (status.name, status.namespace, status.phase) == ("train", "red", "ADMITTED")
    assert status.request == {"cpu": "4"}
    assert status.created_at is not None
    assert status.created_at.tzinfo is not None
    assert status.document["id"] == submitted.id
    assert not status.ended


def test_a_file_may_be_submitted_and_its_namespace_defaults_to_the_callers(
    client: Client, tmp_path: Path
) -> None:
    document = native("train", 4)
    del document["metadata"]["namespace"]
    file = tmp_path / "job.json"
    file.write_text(json.dumps(document))

    submitted = client.submit(file)

    assert submitted.namespace == "red"
    assert client.get(submitted.id).name == "train"


def test_the_same_key_and_document_is_one_workload_and_another_document_is_refused(
    client: Client,
) -> None:
    first = client.submit(native("a", 4), idempotency_key="nightly")
    again = client.submit(native("a", 4), idempotency_key="nightly")

    assert (first.phase_before, again.phase_before) == (None, "ADMITTED")
    assert first.id == again.id
    with pytest.raises(IdempotencyKeyReusedError) as caught:
        client.submit(native("a", 5), idempotency_key="nightly")
    assert caught.value.exit_code is ExitCode.KEY_REUSED


def test_wait_returns_the_outcome_and_require_success_raises_it(
    client: Client,
) -> None:
    submitted = client.submit(native("train", 4))

    admitted = client.wait(submitted.id, goal="admitted")
    late = client.wait(submitted.id, timeout=5)

    assert admitted.phase == "ADMITTED"
    assert late.outcome is ExitCode.NOT_FINISHED
    with pytest.raises(WorkloadOutcomeError) as caught:
        late.require_success()
    assert caught.value.exit_code is ExitCode.NOT_FINISHED


def test_a_rejected_workload_raises_its_errors(client: Client) -> None:
    submitted = client.submit(native("train", 4, queue="elsewhere"))

    rejected = client.wait(submitted.id)

    assert rejected.outcome is ExitCode.WORKLOAD_REJECTED
    with pytest.raises(WorkloadOutcomeError) as caught:
        rejected.require_success()
    assert caught.value.exit_code is ExitCode.WORKLOAD_REJECTED
    assert caught.value.errors


def test_why_events_and_list_are_typed(client: Client) -> None:
    ids = {client.submit(native(f"job-{n}", 40)).id for n in range(3)}

    answer = client.why("job-2")
    events = client.events("job-2")
    listed = list(client.list(queue="red/batch"))

    assert answer.headline
    assert answer.reason is not None
    assert ":" in answer.reason.code
    assert events[0].what == "Submitted"
    assert {status.id for status in listed} == ids
    assert list(client.list(limit=2)) == listed[:2]


def test_names_stand_for_ids_if_they_are_unique(client: Client) -> None:
    one = client.submit(native("one", 1))
    for key in ("a", "b"):
        client.submit(native("two", 1), idempotency_key=key)

    assert client.get("one").id == one.id
    with pytest.raises(AmbiguousNameError):
        client.get("two")
    with pytest.raises(ObjectNotFoundError):
        client.get("three")
    with pytest.raises(WorkloadNotFoundError):
        client.wait("three")


def test_another_tenant_sees_nothing(client: Client, plane: ControlPlane) -> None:
    submitted = client.submit(native("secret", 1))
    stranger = Client(connection=connected(plane, BLUE))

    assert list(stranger.list()) == []
    for method in (stranger.get, stranger.why, stranger.events, stranger.cancel):
        with pytest.raises(ObjectNotFoundError):
            method(submitted.id)  # type: ignore[operator]


def test_a_document_that_is_none_is_refused_before_anything_is_sent(
    client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("- 1\n")

    with pytest.raises(RequestRefusedError):
        client.submit(file)


def test_the_asynchronous_client_has_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(AsyncClient) == methods(Client)


def test_the_asynchronous_client_answers_the_same(plane: ControlPlane) -> None:
    client = AsyncClient(connection=connected(plane))

    async def program() -> tuple[str, list[str]]:
        submitted = await client.submit(native("train", 4))
        status = await client.wait(submitted.id, goal="admitted", timeout=1)
        return status.id, [one.id async for one in client.list()]

    identity, listed = asyncio.run(program())

    assert listed == [identity]


def test_every_exported_name_exists() -> None:
    assert all(getattr(sluice.client, name) for name in sluice.client.__all__)


def test_the_import_is_quick_and_needs_no_sdk() -> None:
    """Seconds of CPU, the fastest of five: other processes may use the cores meanwhile."""
    program = (
        "import sys, time; start = time.process_time(); from sluice.client import Client; "
        "print(time.process_time() - start); "
        "print(sorted({'boto3', 'botocore', 'urllib3', 'yaml', 'jsonschema', 'click', 'rich'}"
        " & set(sys.modules)))"
    )
    runs: list[Any] = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(5)
    ]

    assert {imported for _, imported in runs} == {"[]"}
    assert min(float(seconds) for seconds, _ in runs) < IMPORT_SECONDS
