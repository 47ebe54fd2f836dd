"""Lets a policy pass by early what none of its validations is against.

The API server converts the whole object once for a policy's conditions and then once each for its
validations, messages and annotations, which is most of what a policy costs. A last condition that
says "something is wrong" leaves the good case with one conversion out of four; whatever is wrong
still meets the validations, whose messages say what.
"""

import re
from collections.abc import Mapping
from typing import Any

SOMETHING_IS_WRONG = "something-is-wrong"
_VARIABLE = re.compile(r"\bvariables\.(\w+)")


def with_early_pass(policy: dict[str, Any]) -> dict[str, Any]:
    """The ValidatingAdmissionPolicy with that condition; it refuses neither more nor less.

    Conditions know no variables, so each is written out where it is used.
    """
    spec = policy["spec"]
    variables: dict[str, str] = {}
    for each in spec.get("variables", ()):
        variables[each["name"]] = _written_out(each["expression"], variables)
    right = " && ".join(
        f"({_written_out(each['expression'], variables)})" for each in spec["validations"]
    )
    wrong = {"name": SOMETHING_IS_WRONG, "expression": f"!({right})"}
    return policy | {"spec": spec | {"matchConditions": [*spec.get("matchConditions", ()), wrong]}}


def _written_out(expression: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda used: f"({variables[used[1]]})", expression)
