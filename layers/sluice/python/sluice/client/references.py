"""Documents in S3. They are read here too, so the id is known before the submission."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from sluice.client.documents import Source, Submission
from sluice.client.errors import RequestRefusedError
from sluice.core.intake.documents import Document, Malformed, ManifestReference, from_value, read
from sluice.core.values.identity import workload_id

if TYPE_CHECKING:
    from sluice.client.connection import Connection


def refers(source: Source) -> bool:
    """Whether a document is a reference to a document in S3."""
    return "manifestRef" in source.document


def referenced(
    connection: Connection, source: Source, *, default_namespace: Callable[[], str]
) -> Submission:
    """The submission of a `manifestRef`, which is sent as it is.

    `default_namespace` is called only for a document without a namespace. Raises
    RequestRefusedError.
    """
    found = from_value(source.document)[0]
    if isinstance(found, Malformed):
        errors = [{"field": flaw.field, "message": flaw.message} for flaw in found.flaws]
        raise RequestRefusedError(f"{source.place} is no reference", errors=errors)
    if not isinstance(found, ManifestReference):
        raise RequestRefusedError(
            f"{source.place} is no reference", hint="give manifestRef and sha256"
        )
    uri = f"s3://{found.bucket}/{found.object_key}"
    content = connection.read_object(found.bucket, found.object_key)
    if (digest := hashlib.sha256(content).hexdigest()) != found.sha256:
        raise RequestRefusedError(f"{uri} has the sha256 {digest}, not that of {source.place}")
    items = read(content)
    document = items[0]
    if len(items) != 1 or not isinstance(document, Document):
        raise RequestRefusedError(f"{uri} does not hold one document")
    key = document.declared_key()
    if key is None:
        raise RequestRefusedError(
            f"{uri} has no idempotency key, so its id cannot be known",
            hint="write metadata.idempotencyKey into it (and its new sha256 into the reference)",
        )
    written = document.body.get("metadata")
    metadata = written if isinstance(written, dict) else {}
    namespace = str(metadata.get("namespace") or default_namespace())
    return Submission(
        source,
        workload_id(namespace, key),
        namespace,
        str(metadata.get("name") or metadata.get("generateName") or ""),
        source.document,
        document.body,
        keyed=True,
    )
