"""Sums the Möbius function over a range: M(n) = Σ μ(k), a real computation of some tens of seconds.

    python mertens.py FROM TO OUTPUT [--checkpoint FOLDER] [--segment SIZE]

Writes OUTPUT (JSON: from, to, sum, seconds, segments, resumed_at, run). Sums of neighbouring ranges
add up to Mertens' function, so the parts of a split range can be checked: M(10^7) = 1037. `run` is
drawn when the program starts: a process that goes on elsewhere keeps it, a restarted one does not.

With --checkpoint, SIGUSR1 asks for a checkpoint now, and SIGTERM for one before the end (exit code
143). A checkpoint is a file of its own, named by its step; `MANIFEST.json` names the newest
complete one and is written last. A later run with the same folder goes on from there.
"""

import argparse
import json
import os
import signal
import sys
import time
import uuid
from math import isqrt
from pathlib import Path
from types import FrameType

SEGMENT = 100_000
asked = {"checkpoint": False, "stop": False}


def primes_up_to(most: int) -> list[int]:
    sieve = bytearray([1]) * (most + 1)
    sieve[:2] = b"\0\0"
    for number in range(2, isqrt(most) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, most + 1, number)))
    return [number for number in range(most + 1) if sieve[number]]


def moebius_sum(low: int, high: int, primes: list[int]) -> int:
    """Σ μ(k) for low <= k < high; `primes` must reach the root of high."""
    signs, left = [1] * (high - low), list(range(low, high))
    for prime in primes:
        if prime * prime >= high:
            break
        for at in range(-low % prime, high - low, prime):
            signs[at] = -signs[at]
            left[at] //= prime
        square = prime * prime
        for at in range(-low % square, high - low, square):
            signs[at] = 0
    # What is left of a number is 1 or its one prime factor above the root.
    return sum(-sign if rest > 1 else sign for sign, rest in zip(signs, left, strict=True))


def save(folder: Path, state: dict[str, int]) -> None:
    """The state first, under a name of its own; the manifest that names it last."""
    file = folder / f"step-{state['next']:012d}.json"
    file.write_text(json.dumps(state))
    manifest = {"file": file.name, "step": state["segments"], "progress": state["next"]}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    print(f"checkpoint at {state['next']}", flush=True)


def saved(folder: Path) -> dict[str, int] | None:
    manifest = folder / "MANIFEST.json"
    if not manifest.exists():
        return None
    state: dict[str, int] = json.loads(
        (folder / json.loads(manifest.read_text())["file"]).read_text()
    )
    return state


def note(number: int, _frame: FrameType | None) -> None:
    asked["checkpoint"] = True
    asked["stop"] = asked["stop"] or number == signal.SIGTERM


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("output", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=os.environ.get("SLUICE_CHECKPOINT_DIR"))
    parser.add_argument("--segment", type=int, default=SEGMENT)
    chosen = parser.parse_args()
    folder = Path(chosen.checkpoint) if chosen.checkpoint else None
    state = (saved(folder) if folder else None) or {"next": chosen.first, "sum": 0, "segments": 0}
    resumed_at, began, said = state["next"], time.monotonic(), -1
    run = uuid.uuid4().hex[:8]
    resumed = "resumed" if resumed_at > chosen.first else "started"
    print(f"run {run} {resumed} at {resumed_at}", flush=True)
    if folder:
        signal.signal(signal.SIGUSR1, note)
        signal.signal(signal.SIGTERM, note)
    primes = primes_up_to(isqrt(chosen.last) + 1)
    while state["next"] < chosen.last:
        high = min(state["next"] + chosen.segment, chosen.last)
        state["sum"] += moebius_sum(state["next"], high, primes)
        state["next"], state["segments"] = high, state["segments"] + 1
        percent = 100 * (high - chosen.first) // (chosen.last - chosen.first)
        if percent // 10 != said:
            said = percent // 10
            print(f"{percent:3d} %  at {high}, sum {state['sum']}", flush=True)
        if asked["checkpoint"] and folder:
            asked["checkpoint"] = False
            save(folder, state)
            if asked["stop"]:
                return 128 + signal.SIGTERM
    result = {
        "from": chosen.first,
        "to": chosen.last,
        "sum": state["sum"],
        "seconds": round(time.monotonic() - began, 1),
        "segments": state["segments"],
        "resumed_at": resumed_at,
        "run": run,
    }
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(result) + "\n")
    print(f"done: {json.dumps(result)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
