"""DynamoDB's condition and update expressions over items as they are on the wire.

Only what the adapters write; anything else raises ValueError, so that no benchmark runs on a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

Value: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Value]
Names: TypeAlias = Mapping[str, str]
Values: TypeAlias = Mapping[str, Value]
Operand: TypeAlias = Callable[[Item, Names, Values], "Value | None"]
Condition: TypeAlias = Callable[[Item, Names, Values], bool]
Update: TypeAlias = Callable[[Item, Names, Values], None]

TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),+\-.]|[#:]?[A-Za-z_]\w*)")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")


def plain(value: Value | None) -> Any:
    """A value that compares as DynamoDB compares it: by type, then by content."""
    if value is None:
        return ("", "")
    ((kind, inner),) = value.items()
    return (kind, float(inner) if kind == "N" else inner)


class Parser:
    def __init__(self, text: str) -> None:
        self.tokens = TOKEN.findall(text)
        if "".join(self.tokens) != re.sub(r"\s", "", text):
            raise ValueError(f"unknown expression: {text}")
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if expected and token.upper() != expected:
            raise ValueError(f"expected {expected}, found {token!r} in {self.tokens}")
        self.at += 1
        return str(token)

    def condition(self) -> Condition:
        terms = [self.conjunction()]
        while self.peek().upper() == "OR":
            self.take()
            terms.append(self.conjunction())
        return lambda item, names, values: any(term(item, names, values) for term in terms)

    def conjunction(self) -> Condition:
        terms = [self.term()]
        while self.peek().upper() == "AND":
            self.take()
            terms.append(self.term())
        return lambda item, names, values: all(term(item, names, values) for term in terms)

    def term(self) -> Condition:
        if self.peek().upper() == "NOT":
            self.take()
            inner = self.term()
            return lambda item, names, values: not inner(item, names, values)
        if self.peek() == "(":
            self.take()
            inside = self.condition()
            self.take(")")
            return inside
        name = self.peek()
        if name in ("attribute_exists", "attribute_not_exists", "begins_with", "contains"):
            return self.function(self.take())
        left, operator = self.operand(), self.take().upper()
        if operator == "IN":
            options = self.arguments()
            return lambda item, names, values: (
                plain(left(item, names, values))
                in [plain(option(item, names, values)) for option in options]
            )
        if operator == "BETWEEN":
            low = self.operand()
            self.take("AND")
            high = self.operand()
            return lambda item, names, values: (
                plain(low(item, names, values))
                <= plain(left(item, names, values))
                <= plain(high(item, names, values))
            )
        compare, right = COMPARISONS[operator], self.operand()

        def compared(item: Item, names: Names, values: Values) -> bool:
            one, other = left(item, names, values), right(item, names, values)
            if one is None or other is None:
                return operator == "<>"
            return compare(plain(one), plain(other))

        return compared

    def function(self, name: str) -> Condition:
        arguments = self.arguments()
        first = arguments[0]
        if name == "attribute_exists":
            return lambda item, names, values: first(item, names, values) is not None
        if name == "attribute_not_exists":
            return lambda item, names, values: first(item, names, values) is None
        second = arguments[1]
        if name == "begins_with":
            return lambda item, names, values: str(plain(first(item, names, values))[1]).startswith(
                plain(second(item, names, values))[1]
            )
        return lambda item, names, values: (
            plain(second(item, names, values))[1] in plain(first(item, names, values))[1]
        )

    def arguments(self) -> list[Operand]:
        self.take("(")
        found = [self.operand()]
        while self.take() == ",":
            found.append(self.operand())
        return found

    def operand(self) -> Operand:
        token = self.take()
        if token in ("list_append", "if_not_exists"):
            one, other = self.arguments()
            if token == "if_not_exists":
                return lambda item, names, values: (
                    one(item, names, values) or other(item, names, values)
                )
            return lambda item, names, values: {
                "L": (one(item, names, values) or {})["L"] + (other(item, names, values) or {})["L"]
            }
        if token.startswith(":"):
            return lambda _item, _names, values: values[token]
        path = self.path(token)

        def found(item: Item, names: Names, _values: Values) -> Value | None:
            inner: Value | None = {"M": item}
            for step in path:
                inner = (inner or {}).get("M", {}).get(names.get(step, step))
            return inner

        return found

    def path(self, first: str) -> list[str]:
        steps = [first]
        while self.peek() == ".":
            self.take()
            steps.append(self.take())
        return steps

    def update(self) -> Update:
        changes: list[Update] = []
        while self.peek():
            clause = self.take().upper()
            if clause not in CLAUSES:
                raise ValueError(f"unknown clause {clause}")
            while True:
                changes.append(self.change(clause))
                if self.peek() != ",":
                    break
                self.take()

        def apply(item: Item, names: Names, values: Values) -> None:
            before = dict(item)
            for change in changes:
                change(item, names, {**values, "": {"M": before}})

        return apply

    def change(self, clause: str) -> Update:
        path = self.path(self.take())

        def parent(item: Item, names: Names) -> tuple[Item, str]:
            for step in path[:-1]:
                item = item[names.get(step, step)]["M"]
            return item, names.get(path[-1], path[-1])

        if clause == "REMOVE":
            return lambda item, names, _values: void(parent(item, names))
        if clause == "SET":
            self.take("=")
            value = self.operand()

            def put(item: Item, names: Names, values: Values) -> None:
                holder, key = parent(item, names)
                holder[key] = value(values[""]["M"], names, values) or {}

            return put
        added = self.operand()

        def add(item: Item, names: Names, values: Values) -> None:
            holder, key = parent(item, names)
            ((kind, amount),) = (added(item, names, values) or {}).items()
            if kind != "N" or clause != "ADD":
                raise ValueError(f"{clause} of {kind}")
            holder[key] = {"N": str(int(holder.get(key, {"N": "0"})["N"]) + int(amount))}

        return add


def void(place: tuple[Item, str]) -> None:
    holder, key = place
    holder.pop(key, None)


@cache
def condition(text: str) -> Condition:
    return Parser(text).condition()


@cache
def update(text: str) -> Update:
    return Parser(text).update()
