"""The routes of the api: which question or wish goes to which use case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from sluice.api.requests import FunctionUrlRequest, body_of, caller_of, path_of
from sluice.core.lifecycle.record import PHASES, State
from sluice.usecases.callers import authority
from sluice.usecases.reading.query import PAGE_LIMIT, Filters
from sluice.usecases.request_errors import InvalidError, NoRouteError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.ports import Catalog
    from sluice.usecases.reading.accounts import Accounts
    from sluice.usecases.reading.costs import Costs
    from sluice.usecases.reading.explain import Explain
    from sluice.usecases.reading.query import Query
    from sluice.usecases.reading.shares import Shares
    from sluice.usecases.reading.status import Status
    from sluice.usecases.reading.whatif import WhatIf
    from sluice.usecases.steering.apply import Apply
    from sluice.usecases.steering.checks import Answer
    from sluice.usecases.steering.checkup import Checkup
    from sluice.usecases.steering.dead_letters import DeadLetterOffice
    from sluice.usecases.steering.declare_lost import DeclareLost
    from sluice.usecases.steering.drain import Drain
    from sluice.usecases.steering.ledger_audit import LedgerAudit
    from sluice.usecases.steering.migrations import MigrationRequests
    from sluice.usecases.steering.steer import Steer

MAX_SELECTOR = 20


@dataclass(frozen=True, kw_only=True)
class Api:
    """The use cases behind the api."""

    catalog: Catalog
    query: Query
    explain: Explain
    accounts: Accounts
    costs: Costs
    shares: Shares
    status: Status
    steer: Steer
    apply: Apply
    whatif: WhatIf
    checkup: Checkup
    migrations: MigrationRequests
    answer: Answer
    declare_lost: DeclareLost
    drain: Drain
    ledger_audit: LedgerAudit
    dead_letters: DeadLetterOffice

    def __call__(self, event: Mapping[str, Any], *, account: str) -> Any:
        """The answer to a request of the Function URL, as JSON. Raises RequestError.

        `account` is Sluice's own, whose principals may apply the first Tenant.
        """
        caller = caller_of(event)  # first, since it refuses what no Function URL sends
        request = FunctionUrlRequest(
            method=event["requestContext"]["http"]["method"],
            path=path_of(event),
            caller=authority(caller, self.catalog.snapshot(), account=account),
            query=event.get("queryStringParameters") or {},
            body=body_of(event),
        )
        for route in ROUTES:
            parameters = route.parameters(request.method, request.path)
            if parameters is not None:
                return route.answer(self, replace(request, parameters=parameters))
        raise NoRouteError(f"there is no {request.method} /{'/'.join(request.path)}")


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path and the use case behind it.

    `{name}` stands for one segment of the path, a last `{name...}` for all that are left: the names
    of namespaced objects hold a slash.
    """

    method: str
    template: str
    answer: Callable[[Api, FunctionUrlRequest], Any]

    def parameters(self, method: str, path: tuple[str, ...]) -> dict[str, str] | None:
        """What the path says for each name of the template; None for a path of another route."""
        parts = self.template.split("/")
        if self.template.endswith("...}") and len(path) > len(parts):
            last = len(parts) - 1
            path = (*path[:last], "/".join(path[last:]))
        if method != self.method or len(path) != len(parts):
            return None
        found = {}
        for part, segment in zip(parts, path, strict=True):
            if part.startswith("{"):
                found[part.strip("{.}")] = segment
            elif part != segment:
                return None
        return found


def _identity(_api: Api, request: FunctionUrlRequest) -> Json:
    who = request.caller
    return {
        "who": who.who,
        "user": who.user,
        "tenant": who.tenant,
        "namespaces": list(who.namespaces),
        "sendsAs": who.sends_as,
        "home": who.home,
        "admin": who.admin,
        "bootstrap": who.bootstrap,
    }


def _list(api: Api, request: FunctionUrlRequest) -> Json:
    if ids := request.text("ids"):
        return api.query.several(request.caller, ids.split(","))
    filters = Filters(
        queue=request.text("queue"),
        state=_state(request.text("state")),
        name=request.text("name"),
        user=request.text("user"),
        selector=_selector(request.text("selector")),
        since=request.number("since") if "since" in request.query else None,
        limit=max(1, request.number("limit", PAGE_LIMIT, most=PAGE_LIMIT)),
        cursor=request.text("cursor"),
    )
    return api.query.listed(request.caller, filters)


def _state(text: str) -> str:
    """A phase, or a state of the record. Raises InvalidError: nothing would ever match."""
    if text and text.upper() not in {*PHASES, *State}:
        raise InvalidError(f"{text!r:.40} is no state; there are {', '.join(PHASES)}")
    return text


def _selector(text: str) -> dict[str, str]:
    """Reads `a=b,c=d`. Raises InvalidError."""
    terms = [term.partition("=") for term in text.split(",") if term]
    if len(terms) > MAX_SELECTOR or not all(name and equals for name, equals, _ in terms):
        raise InvalidError(f"{text!r:.80} is no selector; write a=b,c=d")
    return {name: value for name, _, value in terms}


def _logs(api: Api, request: FunctionUrlRequest) -> Json:
    if not request.text("pod"):
        wanted = request.number("generation") if "generation" in request.query else None
        every = bool(request.text("all"))
        return api.query.logs(request.caller, request.parameters["id"], wanted, every=every)
    return api.query.log(
        request.caller,
        request.parameters["id"],
        generation=request.number("generation"),
        pod=request.text("pod"),
        container=request.text("container"),
        offset=request.number("offset", 0),
    )


def _reprioritize(api: Api, request: FunctionUrlRequest) -> Json:
    priority = request.field("priority", (int, str), None)
    return api.steer.reprioritize(request.caller, request.parameters["id"], priority)


def _restore(api: Api, request: FunctionUrlRequest) -> Json:
    return api.migrations.restore(
        request.caller,
        request.parameters["id"],
        checkpoint=request.field("checkpoint", str, ""),
        dry_run=request.field("dryRun", bool, default=False),
    )


def _answer(api: Api, request: FunctionUrlRequest) -> Json:
    return api.answer(
        request.caller,
        request.parameters["id"],
        request.parameters["check"],
        state=request.field("state", str, ""),
        message=request.field("message", str, ""),
        token=request.field("token", str, ""),
    )


def _declare_lost(api: Api, request: FunctionUrlRequest) -> Json:
    dry_run = request.field("dryRun", bool, default=False)
    return api.declare_lost(
        request.caller, request.parameters["cluster"], reason=_reason(request), dry_run=dry_run
    )


def _cordon(*, on: bool) -> Callable[[Api, FunctionUrlRequest], Json]:
    def cordon(api: Api, request: FunctionUrlRequest) -> Json:
        return api.drain.cordon(
            request.caller,
            request.parameters["cluster"],
            on=on,
            reason=_reason(request),
            dry_run=request.field("dryRun", bool, default=False),
        )

    return cordon


def _drain(api: Api, request: FunctionUrlRequest) -> Json:
    dry_run = request.field("dryRun", bool, default=False)
    return api.drain(
        request.caller, request.parameters["cluster"], reason=_reason(request), dry_run=dry_run
    )


def _dead_letters(api: Api, request: FunctionUrlRequest) -> Json:
    limit = request.number("limit", 10, most=1_000)
    return api.dead_letters.of(request.caller, request.parameters["queue"], limit)


def _purge(api: Api, request: FunctionUrlRequest) -> Json:
    dry_run = request.field("dryRun", bool, default=False)
    return api.dead_letters.purge(request.caller, request.parameters["queue"], dry_run=dry_run)


def _objects(api: Api, request: FunctionUrlRequest) -> Json:
    kind, name = request.parameters["kind"], request.parameters.get("name")
    return api.query.objects(request.caller, kind, name)


def _apply(api: Api, request: FunctionUrlRequest) -> Json:
    documents = request.field("documents", list, None)
    return api.apply(
        request.caller,
        documents,
        dry_run=request.field("dryRun", bool, default=False),
        prune=request.field("prune", bool, default=False),
    )


def _delete(api: Api, request: FunctionUrlRequest) -> Json:
    kind, name = request.parameters["kind"], request.parameters["name"]
    return api.apply.delete(request.caller, kind, name, dry_run=request.text("dryRun") == "true")


def _reason(request: FunctionUrlRequest) -> str:
    return str(request.field("reason", str, ""))[:500]


def _audit(api: Api, request: FunctionUrlRequest) -> Json:
    limit = request.number("limit", 100, most=1_000)
    return api.query.audit(
        request.caller, request.parameters["root"], request.number("after", 0), limit
    )


def _recorded(api: Api, request: FunctionUrlRequest) -> Json:
    version = request.parameters["version"]
    digits = version.isascii() and version.isdigit() and len(version) <= len(str(2**53))
    if not digits or int(version) > 2**53:
        raise InvalidError(f"{version!r:.40} is no version of a ledger")
    return api.query.recorded(request.caller, request.parameters["root"], int(version))


def _passes(api: Api, request: FunctionUrlRequest) -> Json:
    limit = max(1, request.number("limit", 100, most=1_000))
    return api.query.passes(
        request.caller, request.parameters["root"], request.number("after", 0), limit
    )


def _costs(api: Api, request: FunctionUrlRequest) -> Json:
    return api.costs(
        request.caller,
        by=request.text("by") or "queue",
        queue=request.text("queue"),
        since=request.number("since") if "since" in request.query else None,
        until=request.number("until") if "until" in request.query else None,
        cursor=request.text("cursor"),
    )


def _cancel(api: Api, request: FunctionUrlRequest) -> Json:
    workload = request.parameters["id"]
    return api.steer.cancel(request.caller, workload, reason=_reason(request))


def _hold(*, on: bool) -> Callable[[Api, FunctionUrlRequest], Json]:
    return lambda api, request: api.steer.hold(request.caller, request.parameters["id"], on=on)


def _requeue(api: Api, request: FunctionUrlRequest) -> Json:
    workload = request.parameters["id"]
    return api.steer.requeue(request.caller, workload, reason=_reason(request))


def _redrive(api: Api, request: FunctionUrlRequest) -> Json:
    return api.dead_letters.redrive(request.caller, request.parameters["queue"])


def _whatif(api: Api, request: FunctionUrlRequest) -> Any:
    return api.whatif(request.caller, request.field("documents", list, None))


def _of_caller(use_case: str) -> Callable[[Api, FunctionUrlRequest], Any]:
    """A question that has no other argument than who asks, as `accounts.queues`."""
    ask = attrgetter(use_case)
    return lambda api, request: ask(api)(request.caller)


def _of(parameter: str, use_case: str) -> Callable[[Api, FunctionUrlRequest], Any]:
    """A question about one thing that the path names."""
    ask = attrgetter(use_case)
    return lambda api, request: ask(api)(request.caller, request.parameters[parameter])


ROUTES: Final = (
    Route("GET", "identity", _identity),
    Route("GET", "status", _of_caller("status")),
    Route("GET", "doctor", _of_caller("checkup")),
    # Workloads
    Route("GET", "workloads", _list),
    Route("GET", "workloads/{id}", _of("id", "query.workload")),
    Route("GET", "workloads/{id}/manifest", _of("id", "query.manifest")),
    Route("GET", "workloads/{id}/events", _of("id", "query.events")),
    Route("GET", "workloads/{id}/why", _of("id", "explain")),
    Route("GET", "workloads/{id}/logs", _logs),
    Route("GET", "workloads/{id}/machines", _of("id", "query.machines")),
    Route("GET", "workloads/{id}/checkpoints", _of("id", "migrations.checkpoints")),
    Route("POST", "workloads/{id}/cancel", _cancel),
    Route("POST", "workloads/{id}/hold", _hold(on=True)),
    Route("POST", "workloads/{id}/release", _hold(on=False)),
    Route("POST", "workloads/{id}/requeue", _requeue),
    Route("POST", "workloads/{id}/reprioritize", _reprioritize),
    Route("POST", "workloads/{id}/checkpoint", _of("id", "migrations.checkpoint")),
    Route("POST", "workloads/{id}/migrate", _of("id", "migrations.migrate")),
    Route("POST", "workloads/{id}/restore", _restore),
    Route("POST", "workloads/{id}/checks/{check...}", _answer),
    # Queues, quota and cost
    Route("GET", "queues", _of_caller("accounts.queues")),
    Route("GET", "capacity", _of_caller("accounts.capacity")),
    Route("GET", "shares", _of_caller("shares")),
    Route("GET", "costs", _costs),
    Route("POST", "whatif", _whatif),
    # Configuration
    Route("GET", "catalog/{kind}", _objects),
    Route("GET", "catalog/{kind}/{name...}", _objects),
    Route("POST", "catalog", _apply),
    Route("DELETE", "catalog/{kind}/{name...}", _delete),
    # Operations
    Route("POST", "clusters/{cluster}/lost", _declare_lost),
    Route("POST", "clusters/{cluster}/cordon", _cordon(on=True)),
    Route("POST", "clusters/{cluster}/uncordon", _cordon(on=False)),
    Route("POST", "clusters/{cluster}/drain", _drain),
    Route("GET", "ledgers", _of_caller("ledger_audit.listed")),
    Route("GET", "ledgers/{root...}", _of("root", "ledger_audit.of")),
    Route("GET", "audit/{root}", _audit),
    Route("GET", "passes/{root}", _passes),
    Route("GET", "passes/{root}/{version}", _recorded),
    Route("GET", "dead-letters", _of_caller("dead_letters.listed")),
    Route("GET", "dead-letters/{queue}", _dead_letters),
    Route("POST", "dead-letters/{queue}/redrive", _redrive),
    Route("POST", "dead-letters/{queue}/purge", _purge),
)
