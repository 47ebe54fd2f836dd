"""Fills the kinds of jobs into the cluster's manifest: one rule and one policy for each row.

In a template, `KIND` stands for a row of `sluice.core.jobs`: a rule of a role or a whole document
with `KIND` is repeated for each. `MAKERS_OF_JOBS` and `MAKERS_OF_PODS` are the conditions that the
controller of some kind creates the Job or the pod of a request.
"""

import json
from collections.abc import Iterator
from typing import Any

from sluice.core.jobs.job import JOB
from sluice.core.jobs.kind import JobKind
from sluice.core.jobs.table import KINDS

# One binary with all controllers of Kubernetes has a user of its own.
_CONTROLLER_MANAGER = "system:kube-controller-manager"


def with_kinds(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The documents of one template."""
    text = json.dumps(document)
    text = text.replace("MAKERS_OF_JOBS", _escaped(makers_of_jobs()))
    text = text.replace("MAKERS_OF_PODS", _escaped(makers_of_pods()))
    filled: dict[str, Any] = json.loads(text)
    if "KIND." in json.dumps(filled["metadata"]):
        for kind in KINDS.values():
            if kind is not JOB:  # has a policy of its own, which looks at the pods as well
                yield _filled(filled, kind)
        return
    if "rules" in filled:
        filled["rules"] = [rule for template in filled["rules"] for rule in _rules(template)]
    yield filled


def makers_of_jobs() -> str:
    """A CEL condition: a controller of another kind makes this Job of one of its objects."""
    return " || ".join(
        f"({_installed(kind)} && object.metadata.ownerReferences.all(o, o.kind == '{kind.kind}'))"
        for kind in KINDS.values()
        if kind.children is not None
    )


def makers_of_pods() -> str:
    """A CEL condition: the controller of a kind makes this pod of one of its objects."""
    return " || ".join(
        f"(({_users(kind)}) && object.metadata.ownerReferences.exists(o, o.kind == '{kind.kind}'"
        " && has(o.controller) && o.controller))"
        for kind in KINDS.values()
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


def _rules(template: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "KIND." not in json.dumps(template):
        yield template
        return
    for kind in KINDS.values():
        yield _filled(template, kind)


def _filled(template: dict[str, Any], kind: JobKind) -> dict[str, Any]:
    text = json.dumps(template)
    for name, value in (("group", kind.group), ("plural", kind.plural), ("kinds", f"{kind.kind}s")):
        text = text.replace(f"KIND.{name}", value)
    filled: dict[str, Any] = json.loads(text)
    return filled


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]
