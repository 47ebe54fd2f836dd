"""Who calls the api, and what the applied Tenants let them see and steer."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.core.config import tenants as tenant_documents
from sluice.usecases.request_errors import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sluice.ports import CatalogSnapshot

ROLE_ARN = re.compile(
    r"arn:[a-z-]+:(iam|sts)::(?P<account>\d{12}):"
    r"(role/(.*/)?(?P<role>[^/]+)|assumed-role/(?P<assumed>[^/]+)(/.*)?)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The IAM identity that signed a request, as the Function URL vouches for it."""

    account: str
    arn: str
    user_id: str

    @property
    def name(self) -> str:
        """The user or `role/session`, for people; never used to decide."""
        return self.arn.rpartition(":")[2].partition("/")[2] or "root"

    @property
    def sender(self) -> str:
        """The part before the session of the SenderId that SQS gives to this caller's messages."""
        return self.user_id.partition(":")[0] or self.account

    def principals(self) -> Iterator[str]:
        """What a Tenant may name to mean this caller, most specific first.

        The session name of a role plays no part: whoever may assume the role chooses it. A role's
        name is unique in its account, so its path plays none either.
        """
        unique = self.user_id.partition(":")[0]
        if unique not in {"", self.account}:  # the account itself is the root user's id
            yield unique
        kind, _, rest = self.arn.rpartition(":")[2].partition("/")
        if kind == "assumed-role":
            yield f"role:{self.account}:{rest.partition('/')[0]}"
        else:
            yield self.arn
        yield self.account


@dataclass(frozen=True, slots=True)
class Authority:
    """What a caller may do. `namespaces` of an administrator say only what is home.

    `checks` are the admission checks that the caller answers. `sends_as` is the Tenant that the
    caller's messages count as, and `home` its namespace for submissions that name none: an
    administrator's ARN may mean one Tenant here and its account another one in a queue. `user` is
    whom the records of these messages name.
    """

    who: str
    tenant: str
    namespaces: tuple[str, ...]
    admin: bool
    bootstrap: bool = False
    checks: tuple[str, ...] = ()
    sends_as: str = ""
    home: str = ""
    user: str = ""

    def may_answer(self, check: str) -> bool:
        return self.admin or check in self.checks

    def may_see(self, namespace: str) -> bool:
        return self.admin or namespace in self.namespaces

    def require_admin(self, what: str) -> None:
        if not self.admin:
            raise ForbiddenError(f"{what} needs an administrator; tenant {self.tenant} is none")


def authority(caller: Caller, catalog: CatalogSnapshot, *, account: str) -> Authority:
    """The caller's rights by the Tenants. Raises ForbiddenError for one that no Tenant names.

    While there is no Tenant at all, the principals of Sluice's own account are administrators:
    otherwise nobody could apply the first one.
    """
    tenants = catalog.of("Tenant")
    if not tenants:
        if caller.account == account:
            return Authority(caller.name, "", (), admin=True, bootstrap=True)
        raise ForbiddenError("no Tenant exists yet, and you are of another account")
    by_principal: dict[str, list[str]] = {}
    for name, document in sorted(tenants.items()):
        for principal in document["spec"].get("principals", ()):
            by_principal.setdefault(_normal(str(principal)), []).append(name)
    for principal in caller.principals():
        if named := by_principal.get(principal):
            submitter = by_principal.get(caller.sender, named)[0]
            granted = _granted(caller.name, named[0], tenants, submitter)
            federated = tenants[submitter]["spec"].get("federatedPrincipals", ())
            user = tenant_documents.user_of(caller.user_id or caller.account, federated)
            return replace(granted, user=user)
    raise ForbiddenError(
        f"no Tenant names {caller.arn}",
        hint="an administrator applies a Tenant whose spec.principals lists your role",
    )


def authority_of_source(source: str, catalog: CatalogSnapshot) -> Authority:
    """The rights behind the `source` of an event of our own account.

    Raises ForbiddenError for one that no Tenant lists in `eventSources`; there is no exception
    while there is no Tenant.
    """
    tenants = catalog.of("Tenant")
    for name, document in sorted(tenants.items()):
        if source and source in document["spec"].get("eventSources", ()):
            return _granted(source, name, tenants, name)
    raise ForbiddenError(
        f"no Tenant names the event source {source!r:.80}",
        hint="an administrator applies a Tenant whose spec.eventSources lists it",
    )


def _granted(
    who: str, tenant: str, tenants: Mapping[str, Mapping[str, Any]], submitter: str
) -> Authority:
    """What a Tenant grants; messages count as those of the Tenant `submitter`."""
    spec = tenants[tenant]["spec"]
    return Authority(
        who,
        tenant,
        tuple(map(str, spec.get("namespaces", ()))),
        spec.get("admin") is True,
        checks=tuple(map(str, spec.get("checks", ()))),
        sends_as=submitter,
        home=str(next(iter(tenants[submitter]["spec"].get("namespaces", ())), "")),
    )


def _normal(principal: str) -> str:
    """A principal of a Tenant in the form that callers are compared in."""
    arn = ROLE_ARN.fullmatch(principal)
    return f"role:{arn['account']}:{arn['role'] or arn['assumed']}" if arn else principal
