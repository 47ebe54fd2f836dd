"""Reads JSON from strangers: what is ambiguous, enormous or not JSON is an error, never a crash."""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final

MAX_BYTES: Final = 1 << 20  # what one SQS message and one EventBridge entry hold
MAX_DEPTH: Final = 64  # a JobSet with every nested field needs less than 20
MAX_KEYS: Final = 1000  # of one object; each unknown one is compared with the known ones
MAX_KEY: Final = 512
MAX_DIGITS: Final = 38  # what DynamoDB keeps of a number

# Possessive, and content with an unclosed string: linear in the length of any text.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


class JsonError(ValueError):
    """A text that is not one strict JSON value; the message says what to change."""


def parse(text: str | bytes) -> Any:
    """The value of a strict JSON text in UTF-8.

    Raises JsonError for anything else: other encodings, duplicate keys, numbers that are not
    finite or have more than 38 digits, nesting above 64, NUL characters, objects with more than
    1000 keys, more than 1 MiB.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MAX_BYTES:
        raise JsonError(
            f"{len(raw)} bytes are more than {MAX_BYTES}; store the document in S3 and send"
            ' {"manifestRef": "s3://BUCKET/KEY", "sha256": "…"}'
        )
    try:
        decoded = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 at byte {error.start}; send UTF-8") from None
    if (depth := _depth(decoded)) > MAX_DEPTH:
        raise JsonError(f"nested {depth} deep, more than {MAX_DEPTH}; flatten the document")
    try:
        value = json.loads(
            decoded,
            object_pairs_hook=_object,
            parse_constant=_refused_constant,
            parse_float=_finite,
            parse_int=_short,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise JsonError(f"not JSON: {error.msg} at {where}; send one JSON object") from None
    _no_odd_characters(value)
    return value


def _depth(text: str) -> int:
    """How deep brackets nest, counted without recursion."""
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(_STRING.sub("", text)))
    return max(accumulate(steps), default=0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise JsonError(f"an object has {len(pairs)} keys; use at most {MAX_KEYS}")
    found = dict(pairs)
    if any(len(key) > MAX_KEY for key in found):
        raise JsonError(f"a key has more than {MAX_KEY} characters; use a shorter one")
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JsonError(f"the key {twice!r} appears twice in one object; keep one")
    return found


def _refused_constant(name: str) -> Any:
    raise JsonError(f"{name} is not a JSON number; write a finite one")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError(f"the number {text[:40]} is not finite; write a smaller one")
    return number


def _short(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise JsonError(f"the number {text[:12]}… has more than {MAX_DIGITS} digits")
    return int(text)


def _no_odd_characters(value: Any) -> None:
    """Refuses what no program argument, key or table can hold: NUL and half surrogate pairs."""
    match value:
        case str():
            if "\0" in value:
                raise JsonError("a text contains the NUL character; remove it")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise JsonError("a text contains half a surrogate pair; remove it") from None
        case dict():
            for key, item in value.items():
                _no_odd_characters(key)
                _no_odd_characters(item)
        case list():
            for item in value:
                _no_odd_characters(item)
