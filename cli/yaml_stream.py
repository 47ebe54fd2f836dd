"""Reads YAML as Kubernetes reads it: no dates, no `yes` or `on` as flags, no key twice."""

from __future__ import annotations

import re
from typing import Any

import yaml

_BOOLEAN = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$", re.ASCII)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(_Loader):  # type: ignore[misc]  # the C loader if there is one
    """Refuses a key that occurs twice in one map; YAML itself would keep the last one."""

    yaml_implicit_resolvers = {  # noqa: RUF012, PyYAML's way to configure a loader
        first: [rule for rule in rules if not rule[0].endswith((":timestamp", ":bool"))]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} occurs twice; remove one",
                    problem_mark=key_node.start_mark,
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))


def parse_yaml(text: str) -> list[Any]:
    """Every document of a stream.

    Raises ValueError with the place and the reason when the text is not YAML.
    """
    try:
        return list(yaml.load_all(text, Loader=StrictLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem}") from error
    except (yaml.YAMLError, UnicodeError, TypeError) as error:
        raise ValueError(str(error)) from error
