"""Starts the `sluice` command, from a clone or from an installed wheel.

A wheel holds the folders of the command and of the embedded stack below `sluice/_tools`, so that
it claims no top-level name but `sluice`. Only the process of the command has them on its path.
"""

import sys
from importlib import import_module
from pathlib import Path

TOOLS = Path(__file__).resolve().parent / "_tools"


def main() -> None:
    """Runs one command and ends the process with its exit code."""
    if TOOLS.is_dir():
        sys.path.insert(0, str(TOOLS))
    import_module("cli.main").main()


if __name__ == "__main__":
    main()
