"""The server of the pages: static files, and the api with the caller's own credentials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.client.errors import SluiceClientError
from sluice.client.transport import ApiRequest
from sluice.client.watching import BATCH
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cli.errors import error_fields
from cli.ui.guard import HEADERS, SessionGuard
from cli.ui.quota_trial import cells, try_nominal

if TYPE_CHECKING:
    from sluice.client.connection import Connection

STATIC = Path(__file__).parent / "static"
PAGES = ("/", "/workloads", "/workloads/{id}", "/quota", "/whatif", "/capacity", "/operate")
Interrupt = Callable[[str], dict[str, Any]]


class PageServer:
    """The endpoints; each one runs in a thread, since requests to the api block."""

    def __init__(self, connection: Connection, interrupt: Interrupt) -> None:
        self.connection = connection
        self.interrupt = interrupt

    def page(self, _request: HttpRequest) -> Response:
        return FileResponse(STATIC / "index.html")

    def api(self, request: HttpRequest, body: Any = None) -> Response:
        """Passes one request on to the api; authorization is the api's."""
        path = tuple(str(request.path_params["path"]).split("/"))
        query = dict(request.query_params)
        answer = self.connection.api.transport(
            ApiRequest(request.method, path, query, body if request.method == "POST" else None)
        )
        return JSONResponse(answer.document, status_code=answer.status)

    def quotas(self, request: HttpRequest) -> Response:
        """The newest recorded pass over a root cohort, and its quotas."""
        root = request.path_params["root"]
        passes = self.connection.api.get("passes", root)["items"]
        if not passes:
            return JSONResponse({"pass": None, "cells": []})
        document = self._recorded(root, str(passes[-1]["version"]))
        return JSONResponse({"pass": passes[-1], "cells": cells(document)})

    def trial(self, request: HttpRequest) -> Response:
        """A recorded pass, decided again with another nominal quota."""
        query = request.query_params
        document = self._recorded(request.path_params["root"], query["version"])
        answer = try_nominal(
            document,
            queue=query["queue"],
            flavor=query["flavor"],
            resource=query["resource"],
            nominal=int(query["nominal"]),
        )
        self._name(answer)
        return JSONResponse(answer)

    def _name(self, answer: dict[str, Any]) -> None:
        """A pass need not have read all whom it decided about; those were recorded by their id."""
        plans = (answer["recorded"], answer["trial"])
        rows = [row for plan in plans for row in (*plan["admitted"], *plan["preempted"])]
        unnamed = {row["id"]: None for row in rows if row["name"] in {"", row["id"]}}
        if not unnamed:
            return
        ids = ",".join(list(unnamed)[:BATCH])
        found = self.connection.api.get("workloads", ids=ids)["items"]
        names = {each["id"]: each["name"] for each in found}
        for row in rows:
            row["name"] = names.get(row["id"], row["name"])

    def drill(self, request: HttpRequest) -> Response:
        """Interrupts the spot instance of a workload, as `sluice drill` does."""
        return JSONResponse(self.interrupt(str(request.path_params["target"])))

    def _recorded(self, root: str, version: str) -> Any:
        return self.connection.api.get("passes", root, version)


def application(connection: Connection, guard: SessionGuard, interrupt: Interrupt) -> Starlette:
    """The application for one session."""
    server = PageServer(connection, interrupt)

    async def guarded(request: HttpRequest, go_on: RequestResponseEndpoint) -> Response:
        response = guard.refusal(request) or await go_on(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def api(request: HttpRequest) -> Response:
        from starlette.concurrency import run_in_threadpool  # noqa: PLC0415 - a cycle otherwise

        body = await request.json() if request.method == "POST" else None
        return await run_in_threadpool(server.api, request, body)

    return Starlette(
        routes=[
            *(Route(path, server.page) for path in PAGES),
            Route("/quotas/{root}", server.quotas),
            Route("/trial/{root}", server.trial),
            Route("/drill/{target}", server.drill, methods=["POST"]),
            Route("/api/{path:path}", api, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)],
        exception_handlers={SluiceClientError: _refused, ValueError: _invalid},
    )


def _refused(_request: HttpRequest, error: Exception) -> Response:
    """An exception of the client as the api would answer it."""
    assert isinstance(error, SluiceClientError)  # noqa: S101 - the handler is registered for it
    return JSONResponse({"error": error_fields(error)}, status_code=502)


def _invalid(_request: HttpRequest, error: Exception) -> Response:
    fields = {"code": "Invalid", "message": str(error), "hint": "", "errors": []}
    return JSONResponse({"error": fields}, status_code=400)
