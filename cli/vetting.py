"""Judges documents on this machine: fields and sizes, not tenant, image or queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.intake.documents import Document
from sluice.core.intake.submission import Rejected, submission
from sluice.core.kinds.tenants import PodSecurity, Tenant

if TYPE_CHECKING:
    from cli.documents import Submission
    from cli.output import Json

UNBOUNDED = 2**31


def checked(each: Submission) -> Json:
    """`valid`, or the errors that every tenant would get."""
    anybody = Tenant(
        "dry-run",
        namespaces=(each.namespace,),
        pod_security=PodSecurity.PRIVILEGED,
        images=("*",),
        require_digest=False,
        secrets=("*",),
        config_maps=("*",),
        claims=("*",),
        max_pods=UNBOUNDED,
        max_gpus=UNBOUNDED,
    )
    judged = submission(Document(each.document), tenant=anybody, key="dry-run", now_ms=0)
    if isinstance(judged, Rejected):
        return {"result": "would be rejected", "errors": judged.errors}
    return {"result": "valid"}
