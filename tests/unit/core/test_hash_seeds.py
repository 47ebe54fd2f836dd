"""The order of sets and hashes never decides: another PYTHONHASHSEED, the same decisions."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.unit.core import decisions


def decided(hash_seed: int) -> list[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-m", decisions.__name__],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_same_input_gives_the_same_plans_whatever_the_order_of_sets() -> None:
    first, *others = (decided(seed) for seed in (1, 2, 3))

    assert len(first) > 100
    assert any("PreemptionStep" in line for line in first)
    for other in others:
        assert other == first
