"""A Kubernetes API server over urllib3: plain documents in, plain documents out.

A thin client instead of the official one, because Lambdas load it on every cold start
(docs/decisions/0005-kubernetes-client.md).
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError

from sluice.adapters.kubernetes_lists import parse_list
from sluice.core.jobs.table import KINDS as JOB_KINDS
from sluice.errors import ClusterError, ClusterForbidden
from sluice.ports import AlreadyExists, Document

# kind → (API path, plural, namespaced)
KINDS = {
    **{row.kind: (f"/apis/{row.api_version}", row.plural, True) for row in JOB_KINDS.values()},
    "Pod": ("/api/v1", "pods", True),
    "Node": ("/api/v1", "nodes", False),
    "PersistentVolume": ("/api/v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "NodePool": ("/apis/karpenter.sh/v1", "nodepools", False),
    "Event": ("/api/v1", "events", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "NodeClaim": ("/apis/karpenter.sh/v1", "nodeclaims", False),
}
NOT_FOUND, CONFLICT, UNPROCESSABLE = 404, 409, 422
_NO_LOG = (b"unable to retrieve container logs for ", b"failed to try resolving symlinks in path ")
"""A kubelet says so with status 200 where the log of a container has gone."""
PAGE = 500
TIMEOUT = urllib3.Timeout(connect=3, read=20)
TIMED_OUT = (ConnectTimeoutError, ReadTimeoutError)
ATTEMPTS = 4
# Sent data that nobody acknowledges for this long means that the connection is dead: a network may
# have forgotten it while Lambda had frozen the function.
DEAD_AFTER_MS = 3_000
BUSY = (429, 503)
LONGEST_WAIT_SECONDS = 2.0
"""A longer Retry-After is the caller's to wait for: its own time is short."""


class KubernetesCluster:
    """One API server. `token` is asked for every request, so that it may be renewed."""

    def __init__(self, endpoint: str, ca: str, token: Callable[[], str]) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._token = token
        trusted = ssl.create_default_context(cadata=ca)
        # Python 3.13 sets this flag by default, but certificates of old EKS clusters lack the
        # extensions that it demands. The chain and the host name are verified all the same.
        trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
        options = [*HTTPConnection.default_socket_options]
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux, hence Lambda
            options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS))
        self._http = urllib3.PoolManager(
            maxsize=16,
            ssl_context=trusted,
            retries=False,
            timeout=TIMEOUT,
            socket_options=options,
        )

    def create(self, document: Document) -> Document | AlreadyExists:
        kind, metadata = document["kind"], document["metadata"]
        namespace = metadata.get("namespace", "")
        status, body = self._call("POST", _path(kind, namespace), document)
        if status == CONFLICT and body.get("reason") == "AlreadyExists":
            existing = self.get(kind, namespace, metadata["name"])
            if existing is not None:
                return AlreadyExists(existing)
            raise ClusterError(f"{kind} {metadata['name']} vanished while it was adopted", status)
        return self._checked(status, body)

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        status, body = self._call("GET", _path(kind, namespace, name))
        return None if status == NOT_FOUND else self._checked(status, body)

    def list(
        self, kind: str, *, selector: str = "", field: str = "", namespace: str = ""
    ) -> tuple[list[Document], str]:
        found: list[Document] = []
        version = ""
        for page, at in self._pages(kind, lambda each: each, selector, field, namespace):
            found += page
            version = at
        return found, version

    def pages(
        self, kind: str, *, selector: str, keep: Callable[[Document], Document], field: str = ""
    ) -> Iterator[tuple[Sequence[Document], str]]:
        yield from self._pages(kind, keep, selector, field)

    def _pages(
        self,
        kind: str,
        keep: Callable[[Document], Document],
        selector: str,
        field: str,
        namespace: str = "",
    ) -> Iterator[tuple[Sequence[Document], str]]:
        query = {"labelSelector": selector, "fieldSelector": field, "limit": str(PAGE)}
        while True:
            answer = self._request("GET", f"{_path(kind, namespace)}?{_query(query)}")
            if answer.status != 200:  # noqa: PLR2004
                self._checked(answer.status, _json(answer.data))
            try:
                found, page = parse_list(answer.data, keep)
            except (ValueError, IndexError) as error:  # a proxy's page, or half of a list
                raise ClusterError(f"no list of {kind}: {error}") from error
            del answer  # its text need not outlive the look at its items
            yield found, page["metadata"]["resourceVersion"]
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    def patch(
        self, kind: str, namespace: str, name: str, patch: Document, *, status: bool = False
    ) -> Document | None:
        """A uid or resourceVersion inside the patch's metadata is a precondition."""
        content = "application/merge-patch+json"
        path = f"{_path(kind, namespace, name)}{'/status' if status else ''}"
        code, body = self._call("PATCH", path, patch, content=content)
        if code in (NOT_FOUND, CONFLICT):
            return None
        if code == UNPROCESSABLE and "metadata.uid" in str(body.get("message")):
            return None  # another object has taken the name: its uid is immutable
        return self._checked(code, body)

    def apply(self, document: Document, *, manager: str) -> Document | None:
        metadata = document["metadata"]
        path = _path(document["kind"], metadata.get("namespace", ""), metadata["name"])
        content = "application/apply-patch+yaml"
        url = f"{path}?{_query({'fieldManager': manager})}"
        status, body = self._call("PATCH", url, document, content=content)
        return None if status == CONFLICT else self._checked(status, body)

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> bool:
        options: Document = {"propagationPolicy": "Foreground"}
        if grace_seconds is not None:
            options = {"gracePeriodSeconds": grace_seconds}
        if uid:
            options["preconditions"] = {"uid": uid}
        status, body = self._call("DELETE", _path(kind, namespace, name), options)
        if status in (NOT_FOUND, CONFLICT):
            return False
        self._checked(status, body)
        return True

    def watch(
        self, kind: str, *, selector: str, version: str, seconds: float
    ) -> Iterator[tuple[str, Document]]:
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(seconds))),
            "allowWatchBookmarks": "true",
        }
        answer = self._request(
            "GET",
            f"{_path(kind)}?{_query(query)}",
            preload_content=False,
            timeout=urllib3.Timeout(connect=3, read=seconds + 5),
        )
        try:
            if answer.status != 200:  # noqa: PLR2004
                self._checked(answer.status, _json(answer.read()))
            for line in _lines(answer):
                event = json.loads(line)
                yield event["type"], event["object"]
        except (HTTPError, ReadTimeoutError) as error:
            raise ClusterError(f"watch of {kind} broke: {error}") from error
        finally:
            answer.close()

    def logs(self, namespace: str, pod: str, container: str, *, limit_bytes: int) -> bytes:
        query = _query({"container": container, "limitBytes": str(limit_bytes)})
        answer = self._request("GET", f"{_path('Pod', namespace, pod)}/log?{query}")
        if answer.status >= 400:  # noqa: PLR2004
            self._checked(answer.status, _json(answer.data))
        log = bytes(answer.data)
        if log.startswith(_NO_LOG) and b"\n" not in log.strip():
            raise ClusterError(log.decode(errors="replace").strip(), NOT_FOUND)
        return log

    def _call(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        content: str = "application/json",
    ) -> tuple[int, Document]:
        encoded = None if body is None else json.dumps(body).encode()
        answer = self._request(method, path, body=encoded, content=content)
        return answer.status, _json(answer.data)

    def _request(
        self, method: str, path: str, *, content: str = "application/json", **options: Any
    ) -> urllib3.BaseHTTPResponse:
        """Repeats what a dead connection or a busy server has lost.

        Any request may be repeated: objects have names that Sluice chooses, a second creation is
        answered by AlreadyExists, and changes are merged or have preconditions.
        """
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "Content-Type": content,
            "Accept": "application/json",
        }
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                answer = self._http.request(
                    method, self._endpoint + path, headers=headers, **options
                )
            except HTTPError as error:
                if attempts_left == 0 or isinstance(error, TIMED_OUT):
                    raise ClusterError(f"{self._endpoint} does not answer: {error}") from error
                # One dead connection means that those kept beside it are dead too.
                self._http.clear()
                continue
            wait = _seconds_to_wait(answer)
            if attempts_left == 0 or wait is None:
                return answer
            answer.release_conn()
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    @staticmethod
    def _checked(status: int, body: Document) -> Document:
        if status < 300:  # noqa: PLR2004
            return body
        message = str(body.get("message") or f"HTTP {status}")
        # RBAC says "cannot VERB resource"; other 403s are policies that dislike the object.
        if status == 401 or (status == 403 and " cannot " in message):  # noqa: PLR2004
            raise ClusterForbidden(message, status)
        retry_after = (body.get("details") or {}).get("retryAfterSeconds", 0)
        raise ClusterError(message, status, float(retry_after))


def _seconds_to_wait(answer: urllib3.BaseHTTPResponse) -> float | None:
    """How long the API server asks to wait, if that is short enough; None: take the answer."""
    if answer.status not in BUSY:
        return None
    try:
        seconds = float(answer.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST_WAIT_SECONDS else None


def _path(kind: str, namespace: str = "", name: str = "") -> str:
    prefix, plural, namespaced = KINDS[kind]
    scope = f"/namespaces/{namespace}" if namespaced and namespace else ""
    return f"{prefix}{scope}/{plural}" + (f"/{name}" if name else "")


def _query(parameters: dict[str, str]) -> str:
    return urlencode({name: value for name, value in parameters.items() if value})


def _json(data: bytes) -> Document:
    try:
        parsed = json.loads(data or b"{}")
    except ValueError:
        return {"message": data[:500].decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"message": str(parsed)}


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Whole lines as they arrive; `read1` returns what is there instead of waiting for more."""
    left = b""
    while chunk := answer.read1(65_536):
        *lines, left = (left + chunk).split(b"\n")
        yield from (line for line in lines if line)
