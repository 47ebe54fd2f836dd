"""Fills the kinds of jobs into the cluster's manifest: one rule and one policy for each row.

In a template, `KIND` stands for a row of `sluice.core.jobs`: a rule of a role or a whole document
with `KIND` is repeated for each. `MAKERS_OF_JOBS` and `MAKERS_OF_PODS` are the conditions that the
controller of some kind creates the Job or the pod of a request. `kinds` names the rows that a
cluster gets: those of add-ons that it does not have would only be rights that nobody needs.
"""

import json
from collections.abc import Collection, Iterator
from typing import Any

from sluice.core.jobs.job import JOB
from sluice.core.jobs.kind import JobKind
from sluice.core.jobs.table import EVERYWHERE, KINDS

# One binary with all controllers of Kubernetes has a user of its own.
_CONTROLLER_MANAGER = "system:kube-controller-manager"


def with_kinds(
    document: dict[str, Any], kinds: Collection[str] = EVERYWHERE
) -> Iterator[dict[str, Any]]:
    """The documents of one template."""
    text = json.dumps(document)
    text = text.replace("MAKERS_OF_JOBS", _escaped(makers_of_jobs(kinds)))
    text = text.replace("MAKERS_OF_PODS", _escaped(makers_of_pods(kinds)))
    filled: dict[str, Any] = json.loads(text)
    if "KIND." in json.dumps(filled["metadata"]):
        for kind in _rows(kinds):
            if kind is not JOB:  # has a policy of its own, which looks at the pods as well
                yield _filled(filled, kind)
        return
    if "rules" in filled:
        filled["rules"] = [rule for template in filled["rules"] for rule in _rules(template, kinds)]
    yield filled


def makers_of_jobs(kinds: Collection[str] = EVERYWHERE) -> str:
    """A CEL condition: a controller of another kind makes this Job of one of its objects."""
    return " || ".join(
        f"({_installed(kind)} && object.metadata.ownerReferences.all(o, o.kind == '{kind.kind}'))"
        for kind in _rows(kinds)
        if kind.children is not None
    )


def makers_of_pods(kinds: Collection[str] = EVERYWHERE) -> str:
    """A CEL condition: the controller of a kind makes this pod of one of its objects."""
    return " || ".join(
        f"(({_users(kind)}) && object.metadata.ownerReferences.exists(o, o.kind == '{kind.kind}'"
        " && has(o.controller) && o.controller))"
        for kind in _rows(kinds)
        if kind.children is None
    )


def _installed(kind: JobKind) -> str:
    """Helm names the controller's account by its release, as in `jobset-controller`."""
    namespace, _, _ = kind.controller.rpartition(":")
    user = "request.userInfo.username"
    by_helm = f"{user}.startsWith('{namespace}:') && {user}.endsWith('-controller')"
    return f"({user} == '{kind.controller}' || ({by_helm}))"


def _users(kind: JobKind) -> str:
    users = (kind.controller, _CONTROLLER_MANAGER) if kind.built_in else (kind.controller,)
    return " || ".join(f"request.userInfo.username == '{user}'" for user in users)


def _rows(kinds: Collection[str]) -> list[JobKind]:
    return [row for name, row in KINDS.items() if name in kinds]


def _rules(template: dict[str, Any], kinds: Collection[str]) -> Iterator[dict[str, Any]]:
    if "KIND." not in json.dumps(template):
        yield template
        return
    for kind in _rows(kinds):
        yield _filled(template, kind)


def _filled(template: dict[str, Any], kind: JobKind) -> dict[str, Any]:
    text = json.dumps(template)
    for name, value in (("group", kind.group), ("plural", kind.plural), ("kinds", f"{kind.kind}s")):
        text = text.replace(f"KIND.{name}", value)
    filled: dict[str, Any] = json.loads(text)
    return filled


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]
