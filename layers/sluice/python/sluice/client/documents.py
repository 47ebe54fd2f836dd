"""Reads job and configuration documents, and gives every job its id before it is sent."""

import json
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.client.errors import RequestRefusedError, UsageError
from sluice.core.intake.documents import Document, valid_key
from sluice.core.values.identity import workload_id

Json = dict[str, Any]

SUFFIXES = {".yaml", ".yml", ".json"}
MOST_BYTES = 2 << 20  # of one document; what a few aliases of YAML unfold to has no bound
KEY_ANNOTATION = "sluice.dev/idempotency-key"
NATIVE = "Workload"


@dataclass(frozen=True)
class Source:
    """One document and where it stands, for messages: `jobs.yaml, document 2`."""

    place: str
    document: Json


@dataclass(frozen=True)
class Submission:
    """What is sent, and the id that it will have.

    `keyed`: its submitter chose the key, so that it may have been used before. `judged` is the
    document itself where only a reference to it is sent.
    """

    source: Source
    id: str
    namespace: str
    name: str
    document: Json
    judged: Json
    keyed: bool


def read(paths: Sequence[str]) -> list[Source]:
    """All documents of these files; `-` is stdin, a folder means its YAML and JSON files."""
    sources = [source for path in paths for source in _documents(path)]
    if not sources:
        raise RequestRefusedError(f"no document in {', '.join(paths)}")
    return sources


def submission(
    source: Source, *, key: str | None = None, namespace: Callable[[], str]
) -> Submission:
    """Adds what is missing (namespace, key) and derives the id; the rest stays as written.

    `namespace` is asked only for a document that names none. Raises RequestRefusedError.
    """
    document = dict(source.document)
    metadata = dict(_mapping(document.get("metadata"), "metadata", source))
    document["metadata"] = metadata
    metadata["namespace"] = str(metadata.get("namespace") or namespace())
    chosen = key or Document(document).declared_key()
    key = chosen or secrets.token_hex(16)
    if not valid_key(key):
        raise RequestRefusedError(
            f"{source.place}: idempotency key {key!r} may only hold a-z, 0-9 and -, at most 63"
        )
    if document.get("kind") == NATIVE:
        metadata["idempotencyKey"] = key
    else:
        annotations = dict(_mapping(metadata.get("annotations"), "metadata.annotations", source))
        metadata["annotations"] = annotations | {KEY_ANNOTATION: key}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    identity = workload_id(metadata["namespace"], key)
    return Submission(
        source, identity, metadata["namespace"], name, document, document, keyed=bool(chosen)
    )


def _mapping(value: Any, field: str, source: Source) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestRefusedError(f"{source.place}: {field} must be a mapping")
    return value


def _documents(path: str) -> Iterator[Source]:
    location = Path(path)
    files = [location]
    if path != "-" and location.is_dir():
        files = sorted(f for f in location.iterdir() if f.suffix in SUFFIXES)
    for file in files:
        place = "stdin" if path == "-" else str(file)
        try:
            raw = sys.stdin.buffer.read() if path == "-" else file.read_bytes()
            yield from _parse(raw.decode("utf-8"), place)
        except OSError as error:
            raise UsageError(f"{place}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RequestRefusedError(f"{place} is no text in UTF-8") from error
        except RecursionError as error:
            raise RequestRefusedError(f"{place} is nested too deeply to be a document") from error


def _once(pairs: list[tuple[str, Any]]) -> Json:
    """A JSON object. Raises ValueError for a key that occurs twice: json would keep the last."""
    found: Json = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice; remove one")
        found[key] = value
    return found


def _require_json(document: Json, place: str) -> None:
    """Raises RequestRefusedError for what YAML can say and a message cannot."""
    size = 0
    try:
        for part in json.JSONEncoder(allow_nan=False).iterencode(document):
            size += len(part)
            if size > MOST_BYTES:
                raise RequestRefusedError(f"{place} is more than {MOST_BYTES >> 20} MiB as JSON")
    except (TypeError, ValueError) as error:
        raise RequestRefusedError(
            f"{place} holds a value that JSON does not have: {error}"
        ) from error


def _parse(text: str, place: str) -> Iterator[Source]:
    """Every document of a text; `kind: List` and JSON arrays count as their items."""
    if place.endswith(".json"):
        try:
            parsed = [json.loads(text, object_pairs_hook=_once)]
        except ValueError as error:
            raise RequestRefusedError(f"{place} is no JSON: {error}") from error
    else:
        from sluice.client.yaml_stream import parse_yaml  # noqa: PLC0415 - JSON needs no YAML parser

        try:
            parsed = parse_yaml(text)
        except ValueError as error:
            raise RequestRefusedError(f"{place} is no YAML: {error}") from error
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
        _require_json(item, place)
        yield Source(place, item)
    else:
        raise RequestRefusedError(f"{place} holds {type(item).__name__}, not a document")
