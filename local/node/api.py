"""The Kubernetes API as plain JSON documents over the client package's connection pool."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
RETRIED = {429, 500, 502, 503, 504}
CONNECTIONS = 32


class ApiError(Exception):
    """The API server's refusal, with its HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class GoneError(ApiError):
    """The resource version to continue a watch from is too old."""


class KubernetesApi:
    """Raw requests; documents are dicts as the API server writes them. Safe for threads."""

    def __init__(self, kubeconfig: Path) -> None:
        configuration = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        configuration.connection_pool_maxsize = CONNECTIONS
        api = client.ApiClient(configuration)
        self._pool = api.rest_client.pool_manager
        self._host = configuration.host
        self._headers: dict[str, str] = {"Accept": "application/json"}
        api.update_params_for_auth(self._headers, [], ["BearerToken"])

    def request(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        """The JSON answer to one request. Raises ApiError with the server's words if it refuses."""
        answer: dict[str, Any] = json.loads(self._request(method, path, body, kind))
        return answer

    def read(self, path: str) -> bytes:
        """The plain answer, such as a log."""
        return self._request("GET", path, None, "application/json")

    def _request(self, method: str, path: str, body: Any, kind: str) -> bytes:
        """Repeated for a minute while the API server cannot be reached or is busy."""
        give_up = time.monotonic() + 60
        pause = 0.1
        while True:
            try:
                response = self._pool.request(
                    method,
                    self._host + path,
                    body=None if body is None else json.dumps(body),
                    headers=self._headers | {"Content-Type": kind},
                    timeout=urllib3.Timeout(connect=5, read=30),
                    retries=False,
                )
            except urllib3.exceptions.HTTPError as error:
                failure = ApiError(503, str(error))
            else:
                if response.status < HTTPStatus.MULTIPLE_CHOICES:
                    return bytes(response.data)
                failure = ApiError(response.status, _message(response.data))
            if failure.status not in RETRIED or time.monotonic() > give_up:
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, 2)

    def get(self, path: str) -> dict[str, Any]:
        return self.request("GET", path)

    def find(self, path: str) -> dict[str, Any] | None:
        """The object, or None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def create(self, path: str, body: Any) -> dict[str, Any]:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Any, *, kind: str = STRATEGIC) -> dict[str, Any]:
        return self.request("PATCH", path, body, kind=kind)

    def delete(self, path: str, *, uid: str, grace_seconds: int | None = None) -> None:
        """Deletes that one object; one that is gone or replaced already is no error."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def watch(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Events from one watch request until the server ends it. Raises GoneError, or ApiError."""
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "290", **query}
        response = self._pool.request(
            "GET",
            f"{self._host}{path}?{urlencode(parameters)}",
            headers=self._headers,
            preload_content=False,
            timeout=urllib3.Timeout(connect=5, read=300),
            retries=False,
        )
        try:
            if response.status != HTTPStatus.OK:
                raise _error(response.status, _message(response.read()))
            unread = b""
            for chunk in response.stream(1 << 16, decode_content=True):
                *lines, unread = (unread + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise _error(status.get("code", 500), status.get("message", ""))
                    yield event
        finally:
            response.close()


def follow(
    api: KubernetesApi,
    path: str,
    query: dict[str, str],
    *,
    listed: Callable[[list[dict[str, Any]]], None],
    changed: Callable[[str, dict[str, Any]], None],
    stop: threading.Event,
) -> None:
    """List, then watch for ever: `listed` gets every full list, `changed` each later event."""
    version: str | None = None
    while not stop.is_set():
        try:
            if version is None:
                answer = api.get(f"{path}?{urlencode(query)}")
                version = answer["metadata"]["resourceVersion"]
                listed(answer["items"])
            for event in api.watch(path, {**query, "resourceVersion": version or ""}):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    changed(event["type"], event["object"])
        except GoneError:
            version = None
        except (ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
            stop.wait(0.2)


def _error(status: int, message: str) -> ApiError:
    return (GoneError if status == HTTPStatus.GONE else ApiError)(status, message)


def _message(data: bytes) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(data).get("message", ""))
    return data.decode(errors="replace")[:500]
