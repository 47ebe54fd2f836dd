"""Judges documents on this machine: fields and sizes, not tenant, image or queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.config.tenants import unbounded
from sluice.core.intake.documents import Document
from sluice.core.intake.submission import Rejected, submission

if TYPE_CHECKING:
    from sluice.client.documents import Submission

    from cli.output import Json


def checked(each: Submission) -> Json:
    """`valid`, or the errors that every tenant would get."""
    judged = submission(
        Document(each.judged), tenant=unbounded(each.namespace), key="dry-run", now_ms=0
    )
    if isinstance(judged, Rejected):
        return {"result": "would be rejected", "errors": list(judged.errors)}
    return {"result": "valid"}
