"""What a warning asks of a cluster does not grow with the cluster's machines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.migration.town import Town


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> tuple[Town, list[str]]:
    """A town, and the kinds that were listed whole since."""
    town = Town()
    kinds: list[str] = []
    real = town.kubernetes.list

    def listing(kind: str, **options: Any) -> Any:
        if not options.get("field") and not options.get("selector"):
            kinds.append(kind)
        return real(kind, **options)

    monkeypatch.setattr(town.kubernetes, "list", listing)
    return town, kinds


def test_a_strangers_machine_is_answered_without_a_list_of_nodes(
    listed: tuple[Town, list[str]],
) -> None:
    town, kinds = listed
    town.ec2.tagged["i-4711"] = frozenset({"somebody-else"})
    kinds.clear()

    outcome = town.hear(town.notice("node-4711"))

    assert "none of ours" in outcome.dropped
    assert "Node" not in kinds


def test_a_machine_that_ec2_does_not_know_is_looked_for_in_the_cluster(
    listed: tuple[Town, list[str]],
) -> None:
    town, kinds = listed

    town.hear(town.notice("node-4711"))

    assert "Node" in kinds


def test_karpenters_claim_is_deleted_by_the_name_that_its_node_has(
    listed: tuple[Town, list[str]],
) -> None:
    town, kinds = listed
    node = town.runs("w")
    claim = town.kubernetes.create({"kind": "NodeClaim", "metadata": {"name": "spot-x"}})
    assert isinstance(claim, dict)
    owner = {"kind": "NodeClaim", "name": "spot-x", "uid": claim["metadata"]["uid"]}
    town.kubernetes.objects["Node", "", node]["metadata"]["ownerReferences"] = [owner]
    kinds.clear()

    assert town.hear(town.notice(node)).moved == ("w",)

    assert "NodeClaim" not in kinds
    assert town.kubernetes.get("NodeClaim", "", "spot-x") is None
