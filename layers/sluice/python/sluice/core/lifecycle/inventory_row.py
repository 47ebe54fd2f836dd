"""Rows of the table Nodes: the machines of a cluster, and when each cluster answered last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """One machine as `observe` saw it; field names are attribute names.

    `allocatable` and `requested` are quantities as Kubernetes writes them; prices are dollars an
    hour, None if unknown. `checkpoint` is a label such as `criu-4.2`, `checkpoint_reason` why the
    node cannot dump processes. `created` is Kubernetes' text, `seen_at` epoch ms.
    """

    instance: str = ""
    node: str = ""
    type: str = ""
    zone: str = ""
    capacity_type: str = ""
    nodepool: str = ""
    created: str = ""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    requested: Mapping[str, str] = field(default_factory=dict)
    """Empty as long as nobody has counted the pods of the node."""
    ready: bool = False
    reservation: str = ""
    cpu: str = ""
    checkpoint: str = ""
    connections: str = ""
    checkpoint_reason: str = ""
    price: float | None = None
    on_demand_price: float | None = None
    seen_at: int = 0
    present: bool = False
    """Its machine was there when the machines of its cluster were counted last; `seen_at` is of
    the time when the row was written."""
    expires: int = 0
    """When DynamoDB may delete the row, in epoch seconds."""


@dataclass(frozen=True, slots=True)
class MachineGroup:
    """Equal machines of a cluster: how many, and what each is, can give and costs."""

    count: int
    machine: InventoryRow


@dataclass(frozen=True, slots=True)
class MachineTotals:
    """What the machines of a cluster add up to; `busy` in millicores that our pods request."""

    instance: str
    """The name of the cluster; the attribute is called as that of machines."""
    busy: int = 0
    groups: tuple[MachineGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredLost:
    """An administrator's word that a cluster is lost for good; `at` in epoch ms."""

    at: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When a cluster's API server answered last (epoch ms), and whether it was declared lost."""

    instance: str
    """The name of the cluster; the attribute is called as that of machines."""
    seen_at: int = 0
    lost: DeclaredLost | None = None
