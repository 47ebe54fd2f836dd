"""Files that are either complete or absent."""

import json
import os
from pathlib import Path
from typing import Any

PRIVATE = 0o600


def write_whole(path: Path, text: str, mode: int = PRIVATE) -> None:
    """Write through a temporary name, so that no reader ever sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.rename(path)


def write_json(path: Path, document: Any) -> None:
    write_whole(path, json.dumps(document, indent=2) + "\n")
