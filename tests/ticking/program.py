"""Counts to LAST, ten steps a second, and notes each step in a file that outlives it.

    python program.py TRACE LAST [--save FOLDER] [--megabytes NUMBER]

With a FOLDER it saves its step there at SIGTERM and goes on from it when it starts again. Each line
of the trace: epoch seconds, run, step. TRACE is a file, or HOST:PORT to send the lines to by UDP:
what a container writes to files goes with it. The file or socket is open only while a line is
written, so that a process saved from outside does not carry it along.
"""

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path

PERIOD_SECONDS = 0.1


def note(trace: str, line: str) -> None:
    host, colon, port = trace.rpartition(":")
    if colon:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(line.encode(), (host, int(port)))
    else:
        with Path(trace).open("a") as file:
            file.write(line)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", help="file or HOST:PORT")
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
        note(chosen.trace, f"{time.time():.3f} {run} {step}\n")
        if kept and asked:
            kept.write_text(str(step))
            return 128 + asked[0]
    print(f"counted to {step} with {len(ballast)} bytes at hand", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
