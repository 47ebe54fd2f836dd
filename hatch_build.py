"""Puts the folders of the command and of the embedded stack below `sluice/_tools` of the wheel.

So the only top-level name that a wheel claims is `sluice` (docs/decisions/0026-one-wheel.md). An
editable installation has the folders of the clone on its path instead.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = (
    "agent",
    "app.py",
    "cdk.json",
    "cli",
    "examples/demo",
    "functions",
    "infra",
    "local",
    "package-lock.json",
    "package.json",
    "requirements",
    "requirements.txt",
    "sluice.yaml",
)
SKIPPED = "__pycache__"


class WheelLayout(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Maps every file of PARTS."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        for part in PARTS:
            source = root / part
            files = [source] if source.is_file() else sorted(source.rglob("*"))
            for file in files:
                if file.is_file() and SKIPPED not in file.parts:
                    target = f"sluice/_tools/{file.relative_to(root).as_posix()}"
                    build_data["force_include"][str(file)] = target
