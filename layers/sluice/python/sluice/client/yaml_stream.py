"""Reads YAML as Kubernetes reads it: no dates, no `yes` or `on` as flags, no key twice.

It nests no deeper than a message may, so that the parser's recursion cannot end the process.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from sluice.core.values.strict_json import MAX_DEPTH

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

    Raises ValueError with the place and the reason when the text is not YAML, or nests too deep.
    """
    try:
        _require_shallow(text)
        return list(yaml.load_all(text, Loader=StrictLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem}") from error
    except (yaml.YAMLError, UnicodeError, TypeError) as error:
        raise ValueError(str(error)) from error


def _require_shallow(text: str) -> None:
    """Raises MarkedYAMLError where a stream nests too deep, aliases unfolded, or holds itself.

    The events of a stream come without recursion; composing them recurses, in C without a limit.
    """
    nesting = _Nesting()
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.DocumentStartEvent():
                nesting = _Nesting()
            case yaml.CollectionStartEvent():
                nesting.open(event.anchor, event.start_mark)
            case yaml.CollectionEndEvent():
                nesting.close()
            case yaml.AliasEvent():
                nesting.alias(event.anchor, event.start_mark)


class _Nesting:
    """How deep one document nests."""

    def __init__(self) -> None:
        # Of every open collection its anchor, and how many levels are below it so far.
        self._open: list[tuple[str | None, int]] = []
        self._levels: dict[str | None, int] = {}  # of closed collections with an anchor

    def open(self, anchor: str | None, mark: Any) -> None:
        self._add(1, mark)
        self._open.append((anchor, 0))

    def close(self) -> None:
        anchor, below = self._open.pop()
        if anchor is not None:
            self._levels[anchor] = below + 1
        self._note(below + 1)

    def alias(self, anchor: str | None, mark: Any) -> None:
        if any(anchor == each for each, _ in self._open):
            problem = f"*{anchor} stands inside of what it means; write it out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        self._add(self._levels.get(anchor, 0), mark)

    def _add(self, levels: int, mark: Any) -> None:
        if len(self._open) + levels > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep; flatten the document"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        self._note(levels)

    def _note(self, levels: int) -> None:
        if self._open:
            anchor, below = self._open[-1]
            self._open[-1] = anchor, max(below, levels)
