"""Our own configuration kinds (`sluice.dev/v1`): what is wrong with a document of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice.core import scheduling_policy, spending, tenants
from sluice.core.document import DocumentError, Fields, Flaw

if TYPE_CHECKING:
    from collections.abc import Mapping

API_VERSION = "sluice.dev/v1"
OWN_KINDS = ("Cluster", "Tenant", scheduling_policy.KIND, spending.KIND)


def flaws_of(label: str, document: Mapping[str, Any]) -> list[Flaw]:
    """Every mistake in a document of one of these kinds; `label` names it in messages."""
    flaws: list[Flaw] = []
    if document["kind"] == scheduling_policy.KIND:
        scheduling_policy.read(Fields(document, label, flaws))
        return flaws
    if document["kind"] == spending.KIND:
        spending.read(Fields(document, label, flaws))
        return flaws
    if document.get("apiVersion") != API_VERSION:
        flaws.append(Flaw(label, "apiVersion", f"must be {API_VERSION}"))
    if document["kind"] == "Tenant":
        try:
            tenants.parse(document)
        except DocumentError as error:
            flaws += [Flaw(label, flaw.field, flaw.message) for flaw in error.flaws]
    else:
        _read_cluster(Fields(document, label, flaws))
    return flaws


def _read_cluster(fields: Fields) -> None:
    """`spec.flavors`: those it offers (none: all); `spec.cordoned`: takes no new work.

    `spec.managePools`: whether `provision` sets limits of labelled NodePools; switched off, it
    gives back what it has set. `spec.maxWaitingPods`: with more without a node, nobody is admitted.
    `spec.region` and `spec.buckets` say which data and checkpoints are near.
    """
    fields.ignore("apiVersion", "kind", "status")
    metadata, spec = fields.map("metadata", required=True), fields.map("spec")
    metadata.text("name", required=True)
    metadata.ignore("labels", "annotations", "namespace")
    spec.texts("flavors")
    spec.text("region")
    spec.texts("buckets")
    spec.boolean("cordoned", default=False)
    spec.boolean("managePools", default=True)
    spec.integer("maxWaitingPods", 0, minimum=1)
    for each in (fields, metadata, spec):
        each.close()
