"""Our own configuration kinds (`sluice.dev/v1`): what is wrong with a document of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice.core.clusters import cluster_spec
from sluice.core.config import scheduling_policy, tenants
from sluice.core.config.document import DocumentError, Fields, Flaw
from sluice.core.passes import budget_charges

if TYPE_CHECKING:
    from collections.abc import Mapping

API_VERSION = "sluice.dev/v1"
OWN_KINDS = (cluster_spec.KIND, "Tenant", scheduling_policy.KIND, budget_charges.KIND)


def flaws_of(label: str, document: Mapping[str, Any]) -> list[Flaw]:
    """Every mistake in a document of one of these kinds; `label` names it in messages."""
    flaws: list[Flaw] = []
    if document["kind"] == scheduling_policy.KIND:
        scheduling_policy.read(Fields(document, label, flaws))
        return flaws
    if document["kind"] == budget_charges.KIND:
        budget_charges.read(Fields(document, label, flaws))
        return flaws
    if document.get("apiVersion") != API_VERSION:
        flaws.append(Flaw(label, "apiVersion", f"must be {API_VERSION}"))
    if document["kind"] == "Tenant":
        try:
            tenants.parse(document)
        except DocumentError as error:
            flaws += [Flaw(label, flaw.field, flaw.message) for flaw in error.flaws]
    else:
        cluster_spec.read(Fields(document, label, flaws))
    return flaws
