"""The port Catalog: edits are transactions on one version; limits move only for named roots."""

from __future__ import annotations

from sluice.ports import CatalogEdit, Commit

from tests.contract.aws.builders import CQ, NOW, ROOT
from tests.contract.aws.ports import Ports

FLAVOR = {"kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": {"weight": 1.5, "n": 3}}


def test_the_first_snapshot_is_empty(ports: Ports) -> None:
    snapshot = ports.catalog.snapshot()

    assert snapshot.version == 0
    assert snapshot.of("ClusterQueue") == {}
    assert ports.catalog.limits(ROOT) == 0


def test_documents_come_back_verbatim_by_kind_and_name(ports: Ports) -> None:
    put = (("ResourceFlavor", "spot", FLAVOR), ("LocalQueue", "team/queue", {"spec": {}}))

    assert ports.catalog.edit(CatalogEdit(0, put))

    snapshot = ports.catalog.snapshot()
    assert snapshot.version == 1
    assert snapshot.of("ResourceFlavor") == {"spot": FLAVOR}
    assert snapshot.of("LocalQueue") == {"team/queue": {"spec": {}}}


def test_an_edit_on_an_old_version_changes_nothing(ports: Ports) -> None:
    ports.catalog.edit(CatalogEdit(0, (("Tenant", "a", {"n": 1}),)))

    for based_on in (0, 2):
        stale = CatalogEdit(based_on, (("Tenant", "a", {"n": 2}),), roots=(ROOT,))
        assert not ports.catalog.edit(stale)

    assert ports.catalog.snapshot().of("Tenant") == {"a": {"n": 1}}
    assert ports.catalog.limits(ROOT) == 0


def test_a_snapshot_follows_every_edit(ports: Ports) -> None:
    ports.catalog.edit(CatalogEdit(0, (("Tenant", "a", {}), ("Tenant", "b", {}))))
    assert set(ports.catalog.snapshot().of("Tenant")) == {"a", "b"}

    assert ports.catalog.edit(
        CatalogEdit(1, (("Tenant", "c", {}),), remove=(("Tenant", "a"), ("Tenant", "missing")))
    )

    assert set(ports.catalog.snapshot().of("Tenant")) == {"b", "c"}


def test_limits_rise_for_the_named_roots_only(ports: Ports) -> None:
    ports.catalog.edit(CatalogEdit(0, roots=("a", "b")))
    ports.catalog.edit(CatalogEdit(1, roots=("b",)))

    assert [ports.catalog.limits(root) for root in "abc"] == [1, 2, 0]


def test_an_edit_can_insist_on_ledgers_that_stand_still(ports: Ports) -> None:
    assert ports.catalog.edit(CatalogEdit(0, ledgers=((ROOT, 0),)))
    ledger = ports.ledgers.read(ROOT)
    ports.ledgers.commit(Commit(ledger, {CQ: {"spot|cpu": 1}}, (), {}, NOW))

    stale = CatalogEdit(1, (("Tenant", "a", {}),), ledgers=((ROOT, 0),))
    assert not ports.catalog.edit(stale)
    assert ports.catalog.snapshot().of("Tenant") == {}

    assert ports.catalog.edit(CatalogEdit(1, ledgers=((ROOT, 1),)))
