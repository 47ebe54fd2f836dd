"""Prepares documents for submission and sends them; the ids are known before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sluice.client.documents import Source, Submission, submission
from sluice.client.errors import RequestRefusedError, SluiceClientError, UsageError
from sluice.client.references import referenced, refers
from sluice.client.sender import encode_message
from sluice.client.watching import batched_ids, key_reused
from sluice.core.lifecycle.completion import withheld
from sluice.core.values.identity import digest

if TYPE_CHECKING:
    from sluice.client.connection import Connection

Json = dict[str, Any]


def prepare(
    connection: Connection,
    source: Source,
    *,
    key: str | None = None,
    namespace: Callable[[], str] | None = None,
) -> Submission:
    """The submission of a document, or of the document in S3 that it refers to.

    `namespace` is called only for a document that names none; by default the api is asked.
    """
    default_namespace = namespace or connection.default_namespace
    if not refers(source):
        return submission(source, key=key, namespace=default_namespace)
    if key:
        raise UsageError("write the idempotency key into the document in S3 instead")
    return referenced(connection, source, default_namespace=default_namespace)


def require_distinct(submissions: Sequence[Submission]) -> None:
    """Raises RequestRefusedError if two documents of one call have the same key."""
    places: dict[str, str] = {}
    for item in submissions:
        first = places.setdefault(item.id, item.source.place)
        if first != item.source.place:
            raise RequestRefusedError(
                f"{first} and {item.source.place} have the same idempotency key"
            )


def earlier_records(connection: Connection, submissions: Sequence[Submission]) -> dict[str, Json]:
    """By id, the records of keys that were used before, for the same documents.

    A caller that may send but not use the api gets none. Raises IdempotencyKeyReusedError if
    another document has the key: the REJECTED record would have an id that the sender cannot know.
    """
    keyed = {item.id: item for item in submissions if item.keyed}
    known: dict[str, Json] = {}
    try:
        for some in batched_ids(list(keyed)):
            found = connection.api.get("workloads", ids=",".join(some))["items"]
            known |= {record["id"]: record for record in found if record["id"] in keyed}
    except SluiceClientError:
        return {}
    for identity, record in known.items():
        same = record.get("digest") == digests([keyed[identity]])[identity]
        if not same and record["phase"] != "REJECTED":
            raise key_reused(identity)
    return known


def send(
    connection: Connection, submissions: Sequence[Submission], transport: str
) -> Mapping[str, str]:
    """Sends the documents once. Returns by id the phase of a workload that was there before.

    A corrected document replaces a rejected record, so that one counts as new.
    """
    require_distinct(submissions)
    messages = [encode_message(item.document, item.id, item.namespace) for item in submissions]
    known = earlier_records(connection, submissions)
    connection.sender(transport)(messages)
    return {
        identity: str(record["phase"])
        for identity, record in known.items()
        if record["phase"] != "REJECTED"
    }


def digests(submissions: Sequence[Submission]) -> dict[str, str]:
    """By id, the digest of the document, by which its record is recognized."""
    return {item.id: digest(withheld(item.judged)) for item in submissions}
