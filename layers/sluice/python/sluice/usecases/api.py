"""The routes of the api: which question or wish goes to which use case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.core.lifecycle.record import PHASES, State
from sluice.usecases.reading.query import PAGE_LIMIT, Filters
from sluice.usecases.refused import InvalidError, RefusedError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.ports import Catalog
    from sluice.usecases.callers import Authority
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


class NoRouteError(RefusedError):
    """The api has no such address, or not this method on it."""

    status = 405
    code = "NoSuchRoute"


@dataclass(frozen=True, slots=True)
class Call:
    """One request: decoded path segments, query and JSON body, and what its caller may do."""

    method: str
    path: tuple[str, ...]
    caller: Authority
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    def text(self, name: str) -> str:
        return self.query.get(name, "")

    def number(self, name: str, default: int | None = None, *, most: int = 2**53) -> int:
        """A whole number, at least 0. Raises InvalidError."""
        value = self.query.get(name, "" if default is None else str(default))
        if not (value.isascii() and value.isdigit()) or int(value) > most:
            raise InvalidError(f"{name} must be a whole number from 0 to {most}, not {value!r:.40}")
        return int(value)

    def field(self, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """A field of the body, of this JSON type. Raises InvalidError."""
        body = {} if self.body is None else self.body
        if not isinstance(body, dict):
            raise InvalidError("the body must be a JSON object")
        value = body.get(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidError(
                f"{name} has the wrong type", [{"field": name, "message": "wrong type"}]
            )
        return value


@dataclass(frozen=True)
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
    moves: MigrationRequests
    answer: Answer
    declare_lost: DeclareLost
    drain: Drain
    ledger_audit: LedgerAudit
    dead_letters: DeadLetterOffice

    def __call__(self, call: Call) -> Any:
        """The answer as JSON. Raises RefusedError."""
        route = (call.method, *_shape(call.path))
        if route not in ROUTES:
            raise NoRouteError(f"there is no {call.method} /{'/'.join(call.path)}")
        return ROUTES[route](self, call)


def _shape(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path with its variable segments as `*`."""
    if path[:1] == ("workloads",) and len(path) > 1:
        checked = path[2:3] == ("checks",) and len(path) > len(("workloads", "*", "checks"))
        return ("workloads", "*", "checks", "*") if checked else ("workloads", "*", *path[2:])
    if path[:1] == ("catalog",) and len(path) > 1:
        # A namespaced name holds a slash, encoded or not.
        return ("catalog", "*", "*") if path[2:] else ("catalog", "*")
    if path[:1] in {("clusters",), ("dead-letters",)} and len(path) > 1:
        return (path[0], "*", *path[2:])
    if path[:1] == ("ledgers",) and len(path) > 1:
        return ("ledgers", "*")  # a LocalQueue's name holds a slash, encoded or not
    if path[:1] in {("audit",), ("passes",)} and len(path) > 1:
        return (path[0], *("*" for _ in path[1:]))
    return path


def _identity(_api: Api, call: Call) -> Json:
    who = call.caller
    return {
        "who": who.who,
        "tenant": who.tenant,
        "namespaces": list(who.namespaces),
        "sendsAs": who.sends_as,
        "home": who.home,
        "admin": who.admin,
        "bootstrap": who.bootstrap,
    }


def _list(api: Api, call: Call) -> Json:
    if ids := call.text("ids"):
        return api.query.several(call.caller, ids.split(","))
    filters = Filters(
        queue=call.text("queue"),
        state=_state(call.text("state")),
        name=call.text("name"),
        user=call.text("user"),
        selector=_selector(call.text("selector")),
        since=call.number("since") if "since" in call.query else None,
        limit=max(1, call.number("limit", PAGE_LIMIT, most=PAGE_LIMIT)),
        cursor=call.text("cursor"),
    )
    return api.query.listed(call.caller, filters)


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


def _logs(api: Api, call: Call) -> Json:
    if not call.text("pod"):
        wanted = call.number("generation") if "generation" in call.query else None
        return api.query.logs(call.caller, call.path[1], wanted)
    return api.query.log(
        call.caller,
        call.path[1],
        generation=call.number("generation"),
        pod=call.text("pod"),
        container=call.text("container"),
        offset=call.number("offset", 0),
    )


def _reprioritize(api: Api, call: Call) -> Json:
    priority = call.field("priority", (int, str), None)
    return api.steer.reprioritize(call.caller, call.path[1], priority)


def _restore(api: Api, call: Call) -> Json:
    return api.moves.restore(
        call.caller,
        call.path[1],
        checkpoint=call.field("checkpoint", str, ""),
        dry_run=call.field("dryRun", bool, default=False),
    )


def _answer(api: Api, call: Call) -> Json:
    return api.answer(
        call.caller,
        call.path[1],
        "/".join(call.path[3:]),
        state=call.field("state", str, ""),
        message=call.field("message", str, ""),
        token=call.field("token", str, ""),
    )


def _declare_lost(api: Api, call: Call) -> Json:
    dry_run = call.field("dryRun", bool, default=False)
    return api.declare_lost(call.caller, call.path[1], reason=_reason(call), dry_run=dry_run)


def _cordon(*, on: bool) -> Callable[[Api, Call], Json]:
    def set_it(api: Api, call: Call) -> Json:
        dry_run = call.field("dryRun", bool, default=False)
        return api.drain.cordon(
            call.caller, call.path[1], on=on, reason=_reason(call), dry_run=dry_run
        )

    return set_it


def _drain(api: Api, call: Call) -> Json:
    dry_run = call.field("dryRun", bool, default=False)
    return api.drain(call.caller, call.path[1], reason=_reason(call), dry_run=dry_run)


def _dead_letters(api: Api, call: Call) -> Json:
    limit = call.number("limit", 10, most=1_000)
    return api.dead_letters.of(call.caller, call.path[1], limit)


def _purge(api: Api, call: Call) -> Json:
    dry_run = call.field("dryRun", bool, default=False)
    return api.dead_letters.purge(call.caller, call.path[1], dry_run=dry_run)


def _objects(api: Api, call: Call) -> Json:
    name = "/".join(call.path[2:]) or None
    return api.query.objects(call.caller, call.path[1], name)


def _apply(api: Api, call: Call) -> Json:
    documents = call.field("documents", list, None)
    return api.apply(call.caller, documents, dry_run=call.field("dryRun", bool, default=False))


def _delete(api: Api, call: Call) -> Json:
    kind, name = call.path[1], "/".join(call.path[2:])
    return api.apply.delete(call.caller, kind, name, dry_run=call.text("dryRun") == "true")


def _reason(call: Call) -> str:
    return str(call.field("reason", str, ""))[:500]


def _audit(api: Api, call: Call) -> Json:
    limit = call.number("limit", 100, most=1_000)
    return api.query.audit(call.caller, call.path[1], call.number("after", 0), limit)


def _recorded(api: Api, call: Call) -> Json:
    version = call.path[2]
    if not (version.isascii() and version.isdigit()) or int(version) > 2**53:
        raise InvalidError(f"{version!r:.40} is no version of a ledger")
    return api.query.recorded(call.caller, call.path[1], int(version))


def _passes(api: Api, call: Call) -> Json:
    limit = max(1, call.number("limit", 100, most=1_000))
    return api.query.passes(call.caller, call.path[1], call.number("after", 0), limit)


def _costs(api: Api, call: Call) -> Json:
    return api.costs(
        call.caller,
        by=call.text("by") or "queue",
        queue=call.text("queue"),
        since=call.number("since") if "since" in call.query else None,
        until=call.number("until") if "until" in call.query else None,
        cursor=call.text("cursor"),
    )


ROUTES: Mapping[tuple[str, ...], Callable[[Api, Call], Any]] = {
    ("GET", "identity"): _identity,
    ("GET", "workloads"): _list,
    ("GET", "workloads", "*"): lambda api, c: api.query.workload(c.caller, c.path[1]),
    ("GET", "workloads", "*", "manifest"): lambda api, c: api.query.manifest(c.caller, c.path[1]),
    ("GET", "workloads", "*", "events"): lambda api, c: api.query.events(c.caller, c.path[1]),
    ("GET", "workloads", "*", "why"): lambda api, c: api.explain(c.caller, c.path[1]),
    ("GET", "workloads", "*", "logs"): _logs,
    ("POST", "workloads", "*", "cancel"): lambda api, c: api.steer.cancel(
        c.caller, c.path[1], reason=_reason(c)
    ),
    ("POST", "workloads", "*", "hold"): lambda api, c: api.steer.hold(c.caller, c.path[1], on=True),
    ("POST", "workloads", "*", "release"): lambda api, c: api.steer.hold(
        c.caller, c.path[1], on=False
    ),
    ("POST", "workloads", "*", "requeue"): lambda api, c: api.steer.requeue(
        c.caller, c.path[1], reason=_reason(c)
    ),
    ("POST", "workloads", "*", "reprioritize"): _reprioritize,
    ("GET", "workloads", "*", "machines"): lambda api, c: api.query.machines(c.caller, c.path[1]),
    ("GET", "workloads", "*", "checkpoints"): lambda api, c: api.moves.checkpoints(
        c.caller, c.path[1]
    ),
    ("POST", "workloads", "*", "checkpoint"): lambda api, c: api.moves.checkpoint(
        c.caller, c.path[1]
    ),
    ("POST", "workloads", "*", "migrate"): lambda api, c: api.moves.migrate(c.caller, c.path[1]),
    ("POST", "workloads", "*", "restore"): _restore,
    ("POST", "workloads", "*", "checks", "*"): _answer,
    ("GET", "queues"): lambda api, c: api.accounts.queues(c.caller),
    ("GET", "costs"): _costs,
    ("POST", "clusters", "*", "lost"): _declare_lost,
    ("POST", "clusters", "*", "cordon"): _cordon(on=True),
    ("POST", "clusters", "*", "uncordon"): _cordon(on=False),
    ("POST", "clusters", "*", "drain"): _drain,
    ("GET", "ledgers"): lambda api, c: api.ledger_audit.listed(c.caller),
    ("GET", "ledgers", "*"): lambda api, c: api.ledger_audit.of(c.caller, "/".join(c.path[1:])),
    ("GET", "dead-letters"): lambda api, c: api.dead_letters.listed(c.caller),
    ("GET", "dead-letters", "*"): _dead_letters,
    ("POST", "dead-letters", "*", "redrive"): lambda api, c: api.dead_letters.redrive(
        c.caller, c.path[1]
    ),
    ("POST", "dead-letters", "*", "purge"): _purge,
    ("GET", "shares"): lambda api, c: api.shares(c.caller),
    ("GET", "status"): lambda api, c: api.status(c.caller),
    ("GET", "capacity"): lambda api, c: api.accounts.capacity(c.caller),
    ("GET", "catalog", "*"): _objects,
    ("GET", "catalog", "*", "*"): _objects,
    ("POST", "catalog"): _apply,
    ("DELETE", "catalog", "*", "*"): _delete,
    ("POST", "whatif"): lambda api, c: api.whatif(c.caller, c.field("documents", list, None)),
    ("GET", "audit", "*"): _audit,
    ("GET", "passes", "*"): _passes,
    ("GET", "passes", "*", "*"): _recorded,
    ("GET", "doctor"): lambda api, c: api.checkup(c.caller),
}
