"""All benchmarks, one after the other: `python -m tests.bench`."""

from __future__ import annotations

import subprocess
import sys

PARTS = ("bench_core", "bench_growth", "bench_gangs", "bench_stack", "bench_interruption")

if __name__ == "__main__":
    for part in PARTS:
        print(f"\n== {part}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.bench.{part}"], check=True)
