"""Documents that lie in S3: read here too, so that the id is known before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from sluice.core.intake.documents import Document, Malformed, ManifestReference, from_value, read
from sluice.core.values.identity import workload_id

from cli.documents import Source, Submission
from cli.errors import RefusedError

if TYPE_CHECKING:
    from cli.app import App


def refers(source: Source) -> bool:
    """Whether a document only says where the document lies."""
    return "manifestRef" in source.document


def referenced(app: App, source: Source, *, home: Callable[[], str]) -> Submission:
    """The submission of a `manifestRef`, which is sent as it is.

    `home` is asked for the namespace of a document that names none. Raises RefusedError.
    """
    found = from_value(source.document)[0]
    if isinstance(found, Malformed):
        errors = [{"field": flaw.field, "message": flaw.message} for flaw in found.flaws]
        raise RefusedError(f"{source.place} is no reference", errors=errors)
    if not isinstance(found, ManifestReference):
        raise RefusedError(f"{source.place} is no reference", hint="give manifestRef and sha256")
    uri = f"s3://{found.bucket}/{found.object_key}"
    stored = app.stored(found.bucket, found.object_key)
    if (digest := hashlib.sha256(stored).hexdigest()) != found.sha256:
        raise RefusedError(f"{uri} has the sha256 {digest}, not that of {source.place}")
    items = read(stored)
    document = items[0]
    if len(items) != 1 or not isinstance(document, Document):
        raise RefusedError(f"{uri} does not hold one document")
    key = document.declared_key()
    if key is None:
        raise RefusedError(
            f"{uri} has no idempotency key, so nobody could know its id",
            hint="write metadata.idempotencyKey into it (and its new sha256 into the reference)",
        )
    written = document.body.get("metadata")
    metadata = written if isinstance(written, dict) else {}
    namespace = str(metadata.get("namespace") or home())
    return Submission(
        source,
        workload_id(namespace, key),
        namespace,
        str(metadata.get("name") or metadata.get("generateName") or ""),
        source.document,
        document.body,
        keyed=True,
    )
