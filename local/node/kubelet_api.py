"""A kubelet's HTTPS endpoints for one node: logs, pods, health, checkpoints."""

import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from local.node import logs
from local.node.api import ApiError
from local.node.criu import CriuError
from local.node.pod_run import PodRun
from local.node.process_pod import ProcessPod
from local.node.site import Site
from local.node.web import Request, Response

_LOGS = re.compile(r"/containerLogs/([^/]+)/([^/]+)/([^/]+)")
_CHECKPOINT = re.compile(r"/checkpoint/([^/]+)/([^/]+)/([^/]+)")
_ELSEWHERE = re.compile(r"/(exec|attach|portForward|run)/")


class Pods(Protocol):
    """The pods of the node that is asked."""

    def find(self, namespace: str, name: str) -> PodRun | None: ...
    def all(self) -> list[ProcessPod]: ...


@dataclass(frozen=True)
class KubeletApi:
    """Answers what kubelets answer, for callers that Kubernetes itself lets do so."""

    site: Site
    pods: Pods

    async def __call__(self, request: Request) -> Response:
        if request.path == "/healthz":
            return Response(200, b"ok")
        if refusal := await self._refusal(request):
            return refusal
        return await self._answer(request)

    async def _answer(self, request: Request) -> Response:
        if match := _LOGS.fullmatch(request.path):
            return await self._logs(request, *match.groups())
        if request.path in ("/pods", "/pods/"):
            items = [run.pod | {"status": run.state.status()} for run in self.pods.all()]
            return Response.json({"kind": "PodList", "apiVersion": "v1", "items": items})
        if (match := _CHECKPOINT.fullmatch(request.path)) and request.method == "POST":
            namespace, name, container = match.groups()
            return await self._checkpoint(request, namespace, name, container)
        if _ELSEWHERE.match(request.path):
            text = "The process node does not support this; run the pod on `kubelet` nodes.\n"
            return Response(501, text.encode())
        return Response(404, b"404 page not found\n")

    async def _refusal(self, request: Request) -> Response | None:
        """The API server by its certificate; others by token and RBAC, as a kubelet's webhook."""
        if request.certified:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return Response(401, b"Unauthorized\n")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        api = self.site.api
        try:
            answer = await self.site.call(
                api.create,
                "/apis/authentication.k8s.io/v1/tokenreviews",
                review | {"spec": {"token": token}},
            )
            status = answer["status"]
            if not status.get("authenticated"):
                return Response(401, b"Unauthorized\n")
            user = status["user"]
            kind = request.path.split("/")[1]
            part = {"containerLogs": "log", "checkpoint": "checkpoint"}.get(kind, "proxy")
            attributes = {
                "verb": "create" if request.method == "POST" else "get",
                "resource": "nodes",
                "subresource": part,
            }
            spec = {
                "user": user.get("username"),
                "groups": user.get("groups", []),
                "uid": user.get("uid", ""),
                "resourceAttributes": attributes,
            }
            answer = await self.site.call(
                api.create,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SubjectAccessReview",
                    "spec": spec,
                },
            )
        except ApiError as error:
            return Response(500, f"{error}\n".encode())
        if answer["status"].get("allowed"):
            return None
        text = f"Forbidden (user={spec['user']}, verb={attributes['verb']}, "
        return Response(403, f"{text}resource=nodes, subresource={part})\n".encode())

    async def _checkpoint(
        self, request: Request, namespace: str, name: str, container: str
    ) -> Response:
        run = self.pods.find(namespace, name)
        if not isinstance(run, ProcessPod) or run.state.container(container) is None:
            return Response(404, f"container {container!r} of {name!r} not found\n".encode())
        seconds = float(request.query.get("timeout") or 0)
        try:
            archive = await run.save(
                container,
                seconds if seconds > 0 else None,
                streamed=request.query.get("stream") == "true",
            )
        except (CriuError, OSError, subprocess.SubprocessError) as error:
            return Response(500, f"checkpointing of {namespace}/{name} failed: {error}\n".encode())
        return Response.json({"items": [str(archive)]})

    async def _logs(self, request: Request, namespace: str, name: str, container: str) -> Response:
        run = self.pods.find(namespace, name)
        course = run.state.container(container) if run else None
        if run is None or course is None:
            return Response(404, f"container {container!r} of pod {name!r} not found\n".encode())
        if not isinstance(run, ProcessPod):
            return Response(200, b"")  # simulated: it has printed nothing
        query = request.query
        unsupported: list[str] = [key for key in ("sinceSeconds", "sinceTime") if key in query]
        unsupported += ["timestamps"] * (query.get("timestamps") == "true")
        if unsupported:
            text = f"The process node keeps no times of log lines: no {', '.join(unsupported)}\n"
            return Response(400, text.encode())
        which = course.restarts - (query.get("previous") == "true")
        path = run.folder.log(container, which)
        if which < 0 or not path.exists():
            text = f"container {container!r} in pod {name!r} has no such log (yet)\n"
            return Response(404 if which < 0 else 400, text.encode())

        def may_write() -> bool:
            return query.get("follow") == "true" and course.restarts == which and course.running

        body: AsyncIterator[bytes] = logs.stream(
            path,
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
            follow=may_write,
        )
        return Response(200, body)
