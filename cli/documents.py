"""Reads job and configuration documents, and gives every job its id before it is sent."""

import json
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from sluice.core.documents import Document, valid_key
from sluice.core.identity import workload_id

from cli.errors import RefusedError

Json = dict[str, Any]

SUFFIXES = {".yaml", ".yml", ".json"}
KEY_ANNOTATION = "sluice.dev/idempotency-key"
NATIVE = "Workload"


@dataclass(frozen=True)
class Source:
    """One document and where it stands, for messages: `jobs.yaml, document 2`."""

    place: str
    document: Json


@dataclass(frozen=True)
class Submission:
    """A document that carries its key, hence its id."""

    source: Source
    id: str
    namespace: str
    name: str
    document: Json


def read(paths: Sequence[str]) -> list[Source]:
    """All documents of these files; `-` is stdin, a folder means its YAML and JSON files."""
    sources = [source for path in paths for source in _documents(path)]
    if not sources:
        raise RefusedError(f"no document in {', '.join(paths)}")
    return sources


def submission(
    source: Source, *, key: str | None = None, namespace: Callable[[], str]
) -> Submission:
    """Adds what is missing (namespace, key) and derives the id; the rest stays as written.

    `namespace` is asked only for a document that names none. Raises RefusedError.
    """
    document = dict(source.document)
    metadata = dict(_mapping(document.get("metadata"), "metadata", source))
    document["metadata"] = metadata
    metadata["namespace"] = str(metadata.get("namespace") or namespace())
    key = key or Document(document).declared_key() or secrets.token_hex(16)
    if not valid_key(key):
        raise RefusedError(
            f"{source.place}: idempotency key {key!r} may only hold a-z, 0-9 and -, at most 63"
        )
    if document.get("kind") == NATIVE:
        metadata["idempotencyKey"] = key
    else:
        annotations = dict(_mapping(metadata.get("annotations"), "metadata.annotations", source))
        metadata["annotations"] = annotations | {KEY_ANNOTATION: key}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    identity = workload_id(metadata["namespace"], key)
    return Submission(source, identity, metadata["namespace"], name, document)


def _mapping(value: Any, field: str, source: Source) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RefusedError(f"{source.place}: {field} must be a mapping")
    return value


def _documents(path: str) -> Iterator[Source]:
    if path == "-":
        yield from _parse(sys.stdin.read(), "stdin")
        return
    location = Path(path)
    if location.is_dir():
        files = sorted(f for f in location.iterdir() if f.suffix in SUFFIXES)
        for file in files:
            yield from _parse(file.read_text(encoding="utf-8"), str(file))
        return
    try:
        text = location.read_text(encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="-f") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{path} is no text in UTF-8") from error
    yield from _parse(text, path)


def _parse(text: str, place: str) -> Iterator[Source]:
    """Every document of a text; `kind: List` and JSON arrays count as their items."""
    if place.endswith(".json"):
        try:
            parsed = [json.loads(text)]
        except ValueError as error:
            raise RefusedError(f"{place} is no JSON: {error}") from error
    else:
        from cli.yaml_stream import parse_yaml  # noqa: PLC0415 - JSON needs no YAML parser

        try:
            parsed = parse_yaml(text)
        except ValueError as error:
            raise RefusedError(f"{place} is no YAML: {error}") from error
    for number, item in enumerate(parsed, start=1):
        if item is not None:
            yield from _items(item, place if len(parsed) == 1 else f"{place}, document {number}")


def _items(item: Any, place: str) -> Iterator[Source]:
    if (
        isinstance(item, dict)
        and item.get("kind") == "List"
        and isinstance(item.get("items"), list)
    ):
        item = item["items"]
    if isinstance(item, list):
        for number, inner in enumerate(item, start=1):
            yield from _items(inner, f"{place}, item {number}")
    elif isinstance(item, dict):
        yield Source(place, item)
    else:
        raise RefusedError(f"{place} holds {type(item).__name__}, not a document")
