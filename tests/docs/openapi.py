"""The api as OpenAPI 3.1, from its table of routes.

Paths and methods are those of the table. Which parameters and fields a route reads is found by
asking it: it is called with a request that notes what is read of it, on use cases that answer
nothing. Sentences and answers stand in `ANSWERS`, one line for each route; a test counts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import MagicMock

from sluice.api.requests import FunctionUrlRequest
from sluice.api.responses import STATUS
from sluice.api.routes import ROUTES, Api, Route
from sluice.usecases.request_errors import InvalidError, RequestError

from tests.docs import api_schemas as of
from tests.docs.api_schemas import Schema, array, items, obj, ref

ERRORS: Final = tuple(map(str, sorted({*STATUS.values(), 500} - {STATUS[RequestError]})))
VERSION: Final = "1"
STEERED: Final = ref("Steered")
DONE_TO_CLUSTER: Final = {"type": "object", "additionalProperties": True}

ANSWERS: Final[dict[str, tuple[str, Schema]]] = {
    "GET identity": ("Who you are to Sluice, and what you may see", of.IDENTITY),
    "GET status": ("Everything at a glance: states, who waits, dollars an hour", of.STATUS),
    "GET doctor": (
        "What is wrong or missing, with advice",
        items(obj(check=of.TEXT, result=of.TEXT, message=of.TEXT, advice=of.TEXT)),
    ),
    "GET workloads": (
        "Newest first, the unfinished and the last 24 hours; or those of `ids`, with commas",
        items(ref("Workload"), {"cursor": of.TEXT}),
    ),
    "GET workloads/{id}": ("One workload, by id or a unique prefix of it", ref("Workload")),
    "GET workloads/{id}/manifest": ("The document that was submitted", ref("Object")),
    "GET workloads/{id}/events": (
        "Its timeline, oldest first",
        items(obj(at=of.AT, generation=of.WHOLE, what=of.TEXT, message=of.TEXT, detail=of.OPEN)),
    ),
    "GET workloads/{id}/why": ("Why it does not run, and what would help", of.WHY),
    "GET workloads/{id}/logs": (
        (
            "Which there are; with `pod`, `generation`, `container` the text of one from `offset`;"
            " with `all` those of every generation"
        ),
        {
            "oneOf": [
                items(
                    obj(
                        generation=of.WHOLE,
                        pod=of.TEXT,
                        container=of.TEXT,
                        live=of.YES_NO,
                        continues=of.YES_NO,
                    ),
                ),
                obj(text=of.TEXT, offset=of.WHOLE, more=of.YES_NO),
            ]
        },
    ),
    "GET workloads/{id}/machines": (
        "The machines that its pods are on now",
        items(
            obj(
                {
                    **dict.fromkeys(("instance", "type", "zone", "capacity_type"), of.TEXT),
                    **dict.fromkeys(("nodepool", "checkpoint", "connections"), of.TEXT),
                },
                node=of.TEXT,
            )
        ),
    ),
    "GET workloads/{id}/checkpoints": (
        "Its checkpoints, newest first, and the one that the next run starts from",
        items(
            of.CHECKPOINT,
            {"canBeSaved": of.OPEN, "connections": of.TEXT},
            restoresFrom=of.TEXT,
        ),
    ),
    "POST workloads/{id}/cancel": ("Ends it", STEERED),
    "POST workloads/{id}/hold": ("Keeps it out of its queue until it is released", STEERED),
    "POST workloads/{id}/release": ("Lets it queue again", STEERED),
    "POST workloads/{id}/requeue": ("Gives its quota back and lets it queue again", STEERED),
    "POST workloads/{id}/reprioritize": (
        "Another priority: a number, or the name of a WorkloadPriorityClass",
        STEERED,
    ),
    "POST workloads/{id}/checkpoint": ("Saves its work now", STEERED),
    "POST workloads/{id}/migrate": ("Moves it to another machine", STEERED),
    "POST workloads/{id}/restore": (
        "Starts it again from a checkpoint; without `checkpoint` from the newest",
        STEERED,
    ),
    "POST workloads/{id}/checks/{check}": (
        "Answers an admission check",
        obj(id=of.TEXT, check=of.TEXT, state=of.TEXT),
    ),
    "GET queues": ("Quota and use of your ClusterQueues", of.QUEUES),
    "GET capacity": ("Machines by cluster and pool; what EC2 has sold out", of.CAPACITY),
    "GET shares": ("Fair shares of the quota trees", of.SHARES),
    "GET costs": ("What was paid for, from `since` to `until`, by a key", of.COSTS),
    "POST whatif": (
        "What would become of these documents if they were submitted now",
        items(obj({"message": of.TEXT, "errors": of.FIELD_ERRORS}, result=of.TEXT)),
    ),
    "GET catalog/{kind}": ("The applied objects of a kind", items(ref("Object"))),
    "GET catalog/{kind}/{name}": ("One applied object", ref("Object")),
    "POST catalog": (
        "Applies objects, all or none",
        items(
            obj(kind=of.TEXT, name=of.TEXT, result=of.TEXT, diff=array(of.OPEN), warnings=of.TEXTS),
            dryRun=of.YES_NO,
        ),
    ),
    "DELETE catalog/{kind}/{name}": (
        "Removes an object that nothing uses",
        obj(kind=of.TEXT, name=of.TEXT, result=of.TEXT, dryRun=of.YES_NO),
    ),
    "POST clusters/{cluster}/lost": ("Declares a cluster lost", DONE_TO_CLUSTER),
    "POST clusters/{cluster}/cordon": ("Starts nothing more there", DONE_TO_CLUSTER),
    "POST clusters/{cluster}/uncordon": ("Lets work start there again", DONE_TO_CLUSTER),
    "POST clusters/{cluster}/drain": ("Cordons it and sends its work away", DONE_TO_CLUSTER),
    "GET ledgers": ("Every ledger beside its recount", items(obj(**of.LEDGER))),
    "GET ledgers/{root}": (
        "One ledger beside its recount, by cell, with who holds what",
        obj(
            **of.LEDGER,
            cells=array(of.OPEN),
            holders=array(of.OPEN),
            spent=of.OPEN,
        ),
    ),
    "GET audit/{root}": (
        "What was written to a ledger, version by version",
        items(
            obj(
                {
                    "admitted": array({"type": "array"}),
                    "released": array({"type": "array"}),
                    "preempted": array({"type": "array"}),
                    "pass": of.OPEN,
                },
                version=of.WHOLE,
                at=of.AT,
            )
        ),
    ),
    "GET passes/{root}": (
        "The admission passes that changed a ledger",
        items(
            obj(
                version=of.WHOLE,
                digest=of.TEXT,
                at=of.AT,
                admitted=of.WHOLE,
                preempted=of.WHOLE,
            )
        ),
    ),
    "GET passes/{root}/{version}": (
        "The recording of a pass, as `sluice replay` reads it",
        of.OPEN,
    ),
    "GET dead-letters": ("Every dead-letter queue", items(of.DEAD_LETTERS_OF)),
    "GET dead-letters/{queue}": ("The letters of one", of.DEAD_LETTERS_OF),
    "POST dead-letters/{queue}/redrive": (
        "Hands them to their function again",
        obj(queue=of.TEXT, taken=of.WHOLE, refused=of.WHOLE, why=of.TEXT, left=of.WHOLE),
    ),
    "POST dead-letters/{queue}/purge": (
        "Deletes them",
        obj(queue=of.TEXT, purged=of.WHOLE, dryRun=of.YES_NO),
    ),
}
TYPES: Final = {str: "string", int: "integer", bool: "boolean", list: "array"}


@dataclass(frozen=True)
class NotingRequest(FunctionUrlRequest):
    """Notes what is read of it; every text of the query is `said`."""

    said: str = ""
    read: dict[str, Schema] = field(default_factory=dict)
    fields: dict[str, Schema] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)

    def text(self, name: str) -> str:
        self.read.setdefault(name, of.TEXT)
        return self.said

    def number(self, name: str, default: int | None = None, *, most: int = 2**53) -> int:
        limits = {"minimum": 0, "maximum": most}
        self.read[name] = of.WHOLE | limits | ({} if default is None else {"default": default})
        return default or 0

    def field(self, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = [TYPES[each] for each in kinds]
        self.fields[name] = {"type": names[0] if len(names) == 1 else names}
        if list in kinds:
            self.fields[name]["items"] = {"type": "object"}
        if default is None:
            self.needed.add(name)
        return default if default is not None else kinds[0]()


class EveryName(dict[str, str]):
    """A query that holds every name, so that what is read only if it is there is read."""

    def __contains__(self, name: object) -> bool:
        return True


def name_of(route: Route) -> str:
    return f"{route.method} {route.template.replace('...', '')}"


def asked(route: Route) -> NotingRequest:
    """The request after the route has read it, once with an empty and once with a filled query."""
    names = re.findall(r"{(\w+)", route.template)
    request = NotingRequest(
        method=route.method,
        path=(),
        caller=MagicMock(),
        query=EveryName(),
        body={},
        parameters=dict.fromkeys(names, "1"),
    )
    for said in ("", "1"):
        object.__setattr__(request, "said", said)
        with suppress(InvalidError):
            route.answer(MagicMock(spec=[*Api.__annotations__]), request)
    return request


def parameters(route: Route, request: NotingRequest) -> Iterator[Schema]:
    for name in re.findall(r"{(\w+)", route.template):
        told = {"description": "may hold slashes"} if f"{{{name}...}}" in route.template else {}
        yield {"name": name, "in": "path", "required": True, "schema": of.TEXT} | told
    for name, schema in request.read.items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def error(status: str) -> Schema:
    found = [kind for kind, of_kind in STATUS.items() if str(of_kind) == status]
    told = [(kind.__doc__ or "").splitlines()[0] for kind in found] or ["A fault of ours."]
    content = {"application/json": {"schema": ref("Error")}}
    return {"description": " ".join(told), "content": content}


def operation(route: Route) -> Schema:
    summary, answer = ANSWERS[name_of(route)]
    request = asked(route)
    found: Schema = {
        "operationId": re.sub(r"\W+", "-", name_of(route)).strip("-").lower(),
        "summary": summary,
        "parameters": list(parameters(route, request)),
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": answer}}},
            **{each: {"$ref": f"#/components/responses/{each}"} for each in ERRORS},
        },
    }
    if request.fields:
        schema = {"type": "object", "properties": request.fields}
        if request.needed:
            schema["required"] = sorted(request.needed)
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": bool(request.needed), "content": content}
    return found


def document() -> Schema:
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        path = "/" + route.template.replace("...", "")
        paths.setdefault(path, {})[route.method.lower()] = operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": VERSION,
            "summary": "The api of the control plane",
            "description": "Requests are signed with SigV4 for the service `lambda`. Submissions "
            "are messages to SQS, not requests. Fields are added to answers, so read what you "
            "know. Generated by `make docs`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {
                "url": "https://{id}.lambda-url.{region}.on.aws",
                "variables": {"id": {"default": "id"}, "region": {"default": "us-east-1"}},
            }
        ],
        "security": [{"sigv4": []}],
        "paths": paths,
        "components": {
            "schemas": of.COMPONENTS,
            "responses": {each: error(each) for each in ERRORS},
            "securitySchemes": {
                "sigv4": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "AWS Signature Version 4, service `lambda`",
                    "x-amazon-apigateway-authtype": "awsSigv4",
                }
            },
        },
    }


def text() -> str:
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
