"""Evaluates IAM policies of templates as far as ours go: what is not understood raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

Statement = Mapping[str, Any]


def allows(
    statements: Iterable[Statement],
    action: str,
    resource: str,
    context: Mapping[str, str] | None = None,
) -> bool:
    """Whether identity-based statements allow a call; resources are named as in templates.

    Source: IAM User Guide, "Policy evaluation logic" and "Condition operators".
    """
    effects = {
        statement["Effect"]
        for statement in statements
        if any(fnmatchcase(action, each) for each in _list(statement["Action"]))
        and any(each in ("*", resource) for each in map(text_of, _list(statement["Resource"])))
        and _holds(statement.get("Condition", {}), context or {})
    }
    return effects == {"Allow"}


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    for operator, wanted in condition.items():
        if operator not in ("Bool", "StringEquals", "ArnEquals"):
            raise NotImplementedError(operator)
        # A key that the request does not carry matches nothing.
        if any(context.get(key) not in _list(values) for key, values in wanted.items()):
            return False
    return True


def text_of(resource: Any) -> str:
    """An ARN, or the name of the resource whose ARN a template inserts."""
    if isinstance(resource, str):
        return resource
    if "Fn::GetAtt" in resource:
        return str(resource["Fn::GetAtt"][0])
    return str(resource)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
