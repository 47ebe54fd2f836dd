"""How large instance types are, from EC2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from sluice.core.clusters.machine_sizes import MachineSize, read_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2 import EC2Client

    from sluice.ports import Clock

KEPT_MS = 24 * 3_600_000
FAILED_MS = 600_000


@dataclass(frozen=True)
class EC2MachineSizes:
    """Asks once a day for each set of types; what is not known limits nobody."""

    ec2: EC2Client
    clock: Clock
    kept: dict[tuple[str, ...], tuple[int, tuple[MachineSize, ...]]] = field(default_factory=dict)

    def matching(self, types: Sequence[str]) -> Sequence[MachineSize]:
        """Of globs such as `c5.*`; none if EC2 does not tell."""
        key, now = tuple(types), self.clock.now()
        until, sizes = self.kept.get(key, (0, ()))
        if now >= until:
            try:
                sizes, lasts = self._ask(key), KEPT_MS
            except (BotoCoreError, ClientError):
                lasts = FAILED_MS  # as it was known before, or unknown
            self.kept[key] = (now + lasts, sizes)
        return sizes

    def _ask(self, types: tuple[str, ...]) -> tuple[MachineSize, ...]:
        pages = self.ec2.get_paginator("describe_instance_types").paginate(
            Filters=[{"Name": "instance-type", "Values": list(types)}]
        )
        return tuple(read_machine(one) for page in pages for one in page["InstanceTypes"])
