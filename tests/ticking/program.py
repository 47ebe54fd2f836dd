"""Counts to LAST, ten steps a second, and notes each step in a file that outlives it.

    python program.py TRACE LAST [--save FOLDER] [--megabytes NUMBER]

With a FOLDER it saves its step there at SIGTERM and goes on from it when it starts again. Each line
of the trace: epoch seconds, run, step. The file is open only while it is written, so that a process
saved from outside does not carry it along.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

PERIOD_SECONDS = 0.1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("last", type=int)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--megabytes", type=int, default=0, help="memory to hold")
    chosen = parser.parse_args()
    kept: Path | None = chosen.save and chosen.save / "step"
    step = int(kept.read_text()) if kept and kept.exists() else 0
    run, asked = os.urandom(4).hex(), list[int]()
    ballast = os.urandom(1 << 20) * chosen.megabytes
    if kept:
        signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    while step < chosen.last:
        time.sleep(PERIOD_SECONDS)
        step += 1
        with chosen.trace.open("a") as file:
            file.write(f"{time.time():.3f} {run} {step}\n")
        if kept and asked:
            kept.write_text(str(step))
            return 128 + asked[0]
    print(f"counted to {step} with {len(ballast)} bytes at hand", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
