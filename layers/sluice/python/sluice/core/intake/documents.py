"""What arrives at a door (SQS body, EventBridge event, file) as single submissions or flaws."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sluice.core.config.document import Flaw
from sluice.core.lifecycle.completion import token_in
from sluice.core.values import strict_json
from sluice.core.values.identity import canonical_json

API_VERSION: Final = "sluice.dev/v1"
MAX_ITEMS: Final = 1000
MAX_REFERENCES: Final = 100  # each is an object to fetch
_KEY: Final = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)
_S3_URI: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([^\s]{1,1024})", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ENVELOPES: Final = 3  # an EventBridge event that holds a CloudEvent that holds a document


@dataclass(frozen=True, slots=True)
class Document:
    """One submission: a JSON object, and its place if it came in a `kind: List`."""

    body: dict[str, Any]
    index: int | None = None

    def declared_key(self) -> str | None:
        """The submitter's own idempotency key as written, whether or not it is valid."""
        metadata = self.body.get("metadata")
        if not isinstance(metadata, dict):
            return None
        annotations = metadata.get("annotations")
        annotated = annotations if isinstance(annotations, dict) else {}
        key = metadata.get("idempotencyKey", annotated.get("sluice.dev/idempotency-key"))
        return None if key is None else str(key)

    def key(self, fallback: str) -> str:
        """The valid declared key, else the message's id, made unique inside a List."""
        declared = self.declared_key()
        if declared is not None and valid_key(declared):
            return declared
        return _numbered(fallback, self.index)


@dataclass(frozen=True, slots=True)
class ManifestReference:
    """A document too large for a message: where it lies, and what its bytes must hash to."""

    bucket: str
    object_key: str
    sha256: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that is not a submission at all."""

    flaws: tuple[Flaw, ...]
    index: int | None = None
    token: str = field(default="", repr=False)
    """Of the Step Functions task that seems to wait for it."""

    def key(self, fallback: str) -> str:
        """The message's id, made unique inside a List."""
        return _numbered(fallback, self.index)


Item = Document | ManifestReference | Malformed


def _numbered(key: str, index: int | None) -> str:
    return key if index is None else f"{key}-{index}"


def valid_key(key: str) -> bool:
    """Whether a text may be an idempotency key: 1 to 63 of `[a-z0-9-]`."""
    return _KEY.fullmatch(key) is not None


def read(text: str | bytes) -> tuple[Item, ...]:
    """The submissions in a text, in order; never raises, never empty."""
    try:
        value = strict_json.parse(text)
    except strict_json.JsonError as error:
        return (replace(malformed("", str(error)), token=token_in(text)),)
    return from_value(value)


def from_value(value: Any) -> tuple[Item, ...]:
    """The submissions in a decoded JSON value; never raises, never empty."""
    for _ in range(_ENVELOPES):
        value = _opened(value)
    if isinstance(value, dict) and value.get("kind") == "List":
        return _items(value)
    return (_read(value, None),)


def _opened(value: Any) -> Any:
    """The content of an EventBridge event or of a CloudEvent; anything else as it is."""
    if isinstance(value, dict) and "kind" not in value:
        if "detail-type" in value and "detail" in value:
            return value["detail"]
        if "specversion" in value and "data" in value:
            return value["data"]
    return value


def _items(value: dict[str, Any]) -> tuple[Item, ...]:
    items = value.get("items")
    if not isinstance(items, list) or not items:
        return (malformed("items", "a List needs items; put the documents there"),)
    if len(items) > MAX_ITEMS:
        message = f"{len(items)} items; send at most {MAX_ITEMS} in a List"
        return (_tokened(malformed("items", message), items),)
    references = sum(isinstance(item, dict) and "manifestRef" in item for item in items)
    if references > MAX_REFERENCES:
        message = f"{references} references; send at most {MAX_REFERENCES} in a List"
        return (_tokened(malformed("items", message), items),)
    return tuple(_read(item, index) for index, item in enumerate(items))


def _read(value: Any, index: int | None) -> Item:
    item = _item(value, index)
    return _tokened(item, value) if isinstance(item, Malformed) else item


def _tokened(item: Malformed, value: Any) -> Malformed:
    return replace(item, token=token_in(canonical_json(value)))


def _item(value: Any, index: int | None) -> Item:
    if not isinstance(value, dict):
        return malformed("", "a submission must be a JSON object with apiVersion and kind", index)
    if "manifestRef" in value:
        return _reference(value, index)
    if "kind" not in value:
        message = f'is missing; for example "Workload" with apiVersion "{API_VERSION}"'
        return malformed("kind", message, index)
    if value["kind"] == "List":
        return malformed("kind", "a List cannot hold a List; put its items here", index)
    return Document(value, index)


def _reference(value: dict[str, Any], index: int | None) -> Item:
    flaws = [
        Flaw("", name, "unknown field; a reference has manifestRef and sha256")
        for name in value
        if name not in {"manifestRef", "sha256"}
    ]
    where, sha256 = value["manifestRef"], value.get("sha256")
    place = _S3_URI.fullmatch(where) if isinstance(where, str) else None
    if place is None:
        flaws.append(Flaw("", "manifestRef", "must be s3://BUCKET/KEY"))
    if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
        flaws.append(Flaw("", "sha256", "must be the 64 hexadecimal digits of the object's sha256"))
    if flaws or place is None or not isinstance(sha256, str):
        return Malformed(tuple(flaws), index)
    return ManifestReference(place[1], place[2], sha256, index)


def malformed(field: str, message: str, index: int | None = None) -> Malformed:
    """Something that cannot be read, with one flaw."""
    return Malformed((Flaw("", field, message),), index)
