"""Reads a list of Kubernetes objects one by one, so that only what is kept of them stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
_DECODER = json.JSONDecoder()
_WHITESPACE = re.compile(r"[ \t\n\r]*")


def parse_list(
    data: bytes, keep: Callable[[Document], Document]
) -> tuple[list[Document], Document]:
    """What `keep` leaves of each item, and the list without its items.

    The whole of a page of 500 pods would take some 20 MB as dictionaries; here it is one object at
    a time beside the text. Raises ValueError if the text is no JSON object.
    """
    text = data.decode()
    kept: list[Document] = []
    rest: Document = {}
    at = _after(text, 0, "{")
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _after(text, at, ":")
        if name == "items" and text[at] == "[":
            at = _items(text, _space(text, at + 1), keep, kept)
        else:
            rest[name], at = _DECODER.raw_decode(text, at)
        at = _space(text, at)
        if text[at] == ",":
            at = _space(text, at + 1)
    return kept, rest


def _items(text: str, at: int, keep: Callable[[Document], Document], kept: list[Document]) -> int:
    while text[at] != "]":
        document, at = _DECODER.raw_decode(text, at)
        kept.append(keep(document))
        at = _space(text, at)
        if text[at] == ",":
            at = _space(text, at + 1)
    return at + 1


def _after(text: str, at: int, mark: str) -> int:
    at = _space(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"{mark} expected at {at} of a list")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _WHITESPACE.match(text, at)
    return found.end() if found else at
