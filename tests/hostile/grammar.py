"""Documents of our own kinds, made worse: the grammar of what strangers, tenants and nodes send.

It draws from a `random.Random`, so that Hypothesis drives and shrinks it in the gate
(`st.randoms()`), and a plain seed repeats a run of hours.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from random import Random
from typing import Any

from sluice.core.intake.pod_fields import FIELDS

SCHEMA: dict[str, Any] = json.loads(
    (resources.files("sluice") / "schemas" / "workload.schema.json").read_text()
)
NUMBERS = (
    0, -1, 1, 0.5, 2**31 - 1, 2**31, 2**53, 2**63, 10**37, 10**38, -(10**37), 1e308, -1e308, 1e-320,
    3.999999999999999999, 12345678901234567890,
)  # fmt: skip
TEXTS = (
    "", " ", "\t\n", "\0", "\x1b[31m", "\u202e", "\u200b", "\ufeff", "\ud800", "\u0661\u0662", "İ",
    "ß", "\U0001f4a5", "e\u0301", "é", "a/b", "../..", "a#b", "%00", "x" * 64, "x" * 1025,
    "-", ".", "true", "null", "NaN", "Infinity", "-0", "1e400", "1e-400", "0x10", "1_000", "١",
    "9" * 40, "9" * 5_000, "1" * 20_000, "1.5.5", "16Gi", "1E", "1e3", "-1", "500m", "1n", "1Ki",
    "1h1h", "24h", "99999h", "1ns", "-5s", "0s", ".5s", "s3://b", "s3://bucket/../x", "s3://b00/x",
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-13-01",
    "SIGUSR1", "Never", "*", "CAPACITY:*", "$(A)$(A)", "$$(A", "{", "[]", "<script>", "a=b,c=d",
    "arn:aws:iam::123456789012:role/x", "AROATEAM:session", "i-0abc", "@", "x@sha256:0", "A" * 300,
)  # fmt: skip
MOST_DEEP = 100
MOST_CHARACTERS = 100_000
ODD: tuple[Any, ...] = (*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [None], {"": None})


@dataclass(frozen=True)
class Grammar:
    """Changes of seeds; `words` are keys that mean something to the reader."""

    dice: Random
    words: Sequence[str]
    seeds: Sequence[Any]
    most_changes: int = 6

    def document(self) -> Any:
        """A seed with some places changed, or all of it made up."""
        value = copy.deepcopy(self.dice.choice(self.seeds))
        for _ in range(self.dice.randrange(self.most_changes + 1)):
            before = copy.deepcopy(value)
            value = self.changed(value)
            if len(json.dumps(value)) > MOST_CHARACTERS:
                value = before
        return value

    def text(self) -> str:
        """A document as JSON, sometimes spoilt as a text too."""
        value = self.document()
        try:
            text = json.dumps(value, ensure_ascii=self.dice.random() < 0.5)
        except (ValueError, RecursionError):
            text = "{}"
        if self.dice.random() < 0.15:
            text = self.spoilt(text)
        return text

    def changed(self, value: Any) -> Any:
        """One place of a value is replaced, removed, added to, repeated, wrapped or swapped."""
        _, *inside = places(value)
        if not inside or self.dice.random() < 0.01:
            return self.odd() if self.dice.random() < 0.5 else self.wrapped(value)
        path = self.dice.choice(inside)
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        change: Callable[[Any, Any], None] = self.dice.choice(
            (self._replace, self._replace, self._edit, self._edit, self._add, self._add,
             self._remove, self._remove, self._wrap, self._repeat, self._splice)
        )  # fmt: skip
        change(holder, path[-1])
        return value

    def odd(self) -> Any:
        if self.dice.random() < 0.5:
            return copy.deepcopy(self.dice.choice(ODD))
        if self.dice.random() < 0.5:
            return {self.key(): self.odd() for _ in range(self.dice.randrange(3))}
        return [self.odd() for _ in range(self.dice.randrange(3))]

    def key(self) -> str:
        return self.dice.choice(self.words if self.dice.random() < 0.8 else TEXTS)

    def wrapped(self, value: Any) -> Any:
        for _ in range(self.dice.choice((1, 1, 1, 1, 2, 2, 5, 70))):
            value = [value] if self.dice.random() < 0.5 else {self.key(): value}
        return value

    def _replace(self, holder: Any, step: Any) -> None:
        holder[step] = self.odd()

    def _edit(self, holder: Any, step: Any) -> None:
        """The same kind of value, a little different."""
        old = holder[step]
        if isinstance(old, str):
            at = self.dice.randrange(len(old) + 1)
            holder[step] = self.dice.choice(
                (old[:at] + self.dice.choice(TEXTS) + old[at:], old[:at], old * 9, old.upper())
            )
        elif isinstance(old, int | float):
            holder[step] = self.dice.choice((old + 1, -old, old * 10**9, str(old), [old]))
        else:
            self._replace(holder, step)

    def _add(self, holder: Any, step: Any) -> None:
        if isinstance(holder, dict):
            holder[self.key()] = self.odd()
        else:
            holder.insert(step, self.odd())

    def _remove(self, holder: Any, step: Any) -> None:
        del holder[step]

    def _wrap(self, holder: Any, step: Any) -> None:
        holder[step] = self.wrapped(holder[step])

    def _repeat(self, holder: Any, step: Any) -> None:
        times = self.dice.choice((1, 2, 30, 200))
        if isinstance(holder, list):
            holder += [copy.deepcopy(holder[step]) for _ in range(times)]
        else:
            holder |= {f"{step}{number}": holder[step] for number in range(times)}

    def _splice(self, holder: Any, step: Any) -> None:
        """What stands elsewhere, perhaps in another document."""
        other = copy.deepcopy(self.dice.choice(self.seeds))
        for inner in self.dice.choice(list(places(other))):
            other = other[inner]
        holder[step] = other

    def spoilt(self, text: str) -> str:
        at = self.dice.randrange(len(text) + 1)
        return self.dice.choice(
            (
                text[:at],
                text[:at] + self.dice.choice(("NaN", "\0", "\ufeff", '"', "}", "1e999", "\\ud800"))
                + text[at:],
                text.replace("{", '{"kind": "List", ', 1),  # perhaps a key twice
                text.replace(":", ': {"a": 1, "a": 2}, "b":', 1),
                "[" * 100_000,
                '{"a":' * 5_000 + text,
                text + " " * 10_000,
                text.replace("1", "1" * 5_000, 1),
                f'"{text}',
            )
        )  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a document; of long lists only the beginning."""
    yield path
    if len(path) > MOST_DEEP:
        return
    if isinstance(value, dict):
        for key, item in list(value.items())[:60]:
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value[:20]):
            yield from places(item, (*path, number))


@dataclass
class FromSchema:
    """Valid and nearly valid documents of a JSON Schema, as far as ours uses the language."""

    dice: Random
    schema: Mapping[str, Any]
    texts: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def value(self, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
        if reference := schema.get("$ref"):
            schema = self.schema["$defs"][reference.rpartition("/")[2]] | dict(schema)
        if several := schema.get("oneOf") or schema.get("anyOf"):
            return self.value(self.dice.choice(several), name, depth + 1)
        if known := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
            return self.dice.choice(known)
        kinds = schema.get("type", "string")
        match self.dice.choice(kinds) if isinstance(kinds, list) else kinds:
            case "object":
                return self._object(schema, depth)
            case "array":
                inner = schema.get("items", {})
                count = self.dice.randrange(schema.get("minItems", 0), 3)
                return [self.value(inner, name, depth + 1) for _ in range(count)]
            case "integer" | "number":
                least, most = schema.get("minimum", 0), schema.get("maximum", 2**31)
                return self.dice.choice((least, most, max(least, 1), least - 1, most + 1))
            case "boolean":
                return self.dice.random() < 0.5
        return self.dice.choice((*self.texts.get(name, ()), "a", "1", "1h", "16Gi", "x" * 63))

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        known = schema.get("properties", {})
        required = schema.get("required", ())
        wanted = [k for k in known if k in required or self.dice.random() < (0.5 if depth else 1)]
        found = {key: self.value(known[key], key, depth + 1) for key in wanted}
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and self.dice.random() < 0.5:
            found["cpu" if not known else "extra"] = self.value(extra, "", depth + 1)
        return found


def words_of(*seeds: Any) -> tuple[str, ...]:
    """Keys and short texts of documents and schemas, and every field of a pod."""
    found = {name for fields in FIELDS.values() for name in fields}
    found |= {str(step) for seed in seeds for path in places(seed) for step in path}
    found |= {str(step) for path in places(SCHEMA) for step in path if isinstance(step, str)}
    return tuple(sorted(found))
