"""EC2 is asked only for silent machines that bear pods of ours, and only its word counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes

from tests.fakes import MemoryMachines, RecordedInterruptions

ENDED = {"source": "aws.ec2", "detail": {"instance-id": "i-1", "state": "terminated"}}


class Asked(MemoryMachines):
    def __init__(self) -> None:
        super().__init__({"i-1": ENDED, "i-3": ENDED, "i-4": ENDED})
        self.asked: list[list[str]] = []

    def ended(self, instances: Any) -> list[Any]:
        self.asked.append(list(instances))
        return super().ended(instances)


def never() -> list[Any]:
    raise AssertionError("the inventory is read only for nodes that are no more")


def a_row(number: int, *, ready: bool) -> InventoryRow:
    return InventoryRow(f"i-{number}", f"node-{number}", ready=ready)


def test_only_the_end_of_a_silent_machine_with_pods_is_said() -> None:
    ec2, said = Asked(), RecordedInterruptions()
    inventory = [
        a_row(1, ready=False),
        a_row(2, ready=False),  # silent, and by EC2's word still there
        a_row(3, ready=True),
        a_row(4, ready=False),  # nothing of ours on it
    ]

    DetectLostNodes(ec2, said)(inventory, {"node-1", "node-2", "node-3"}, never)

    assert ec2.asked == [["i-1", "i-2"]]
    assert said.sent == [ENDED]


def test_ec2_is_not_asked_while_all_is_well() -> None:
    ec2 = Asked()

    DetectLostNodes(ec2, RecordedInterruptions())([a_row(1, ready=True)], {"node-1"}, never)

    assert ec2.asked == []


def test_a_node_that_was_removed_under_its_pods_is_looked_up_in_the_inventory() -> None:
    ec2, said = Asked(), RecordedInterruptions()
    earlier = replace(a_row(4, ready=False), node="node-1", created="2026-11-20T08:00:00Z")
    inventory = [replace(a_row(1, ready=True), created="2026-11-21T08:00:00Z"), earlier]

    DetectLostNodes(ec2, said)(
        [a_row(3, ready=True)], {"node-1", "node-3", "node-9"}, lambda: inventory
    )

    assert ec2.asked == [["i-1"]], "a name is taken again with its address; the newest counts"
    assert said.sent == [ENDED]
