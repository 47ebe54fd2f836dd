"""Hours of hostile documents: `python -m tests.hostile.fuzz --minutes 60`.

Prints per reader: documents tried, failures, the slowest document, and the highest memory. A text
that fails is written to `tests/hostile/corpus/READER/`, where the gate tries it for ever.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import logging
import resource
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.hostile.readers import BUDGET_SECONDS, READERS, Reader, prepare

CORPUS = Path(__file__).parent / "corpus"


class TooSlowError(AssertionError):
    """A document cost more time than it may."""


def tried(reader: Reader, text: str) -> float:
    """CPU seconds that a document cost. Raises what the reader raised, or TooSlowError."""
    began = time.process_time()
    reader.read(text)
    took = time.process_time() - began
    if took > BUDGET_SECONDS:
        raise TooSlowError(f"{took:.1f} s of CPU for {len(text)} characters")
    return took


@dataclass
class Findings:
    tried: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Where it failed → reader and text, the shortest."""
    repeated: Counter[str] = field(default_factory=Counter)

    def run(self, reader: Reader, seed: int) -> None:
        text = reader.make(Random(seed))
        self.tried[reader.name] += 1
        try:
            took = tried(reader, text)
        except Exception as error:  # noqa: BLE001, whatever it is, it is what is looked for
            self._keep(reader, text, seed, error)
            return
        self.slowest[reader.name] = max(took, self.slowest.get(reader.name, 0.0))

    def _keep(self, reader: Reader, text: str, seed: int, error: Exception) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{reader.name}: {type(error).__name__} at {last.filename}:{last.lineno}"
        self.repeated[where] += 1
        if where not in self.failed or len(text) < len(self.failed[where][1]):
            if where not in self.failed:
                print(f"FAILED seed {seed}: {where}: {error!s:.300}", flush=True)
            self.failed[where] = reader.name, text
            folder = CORPUS / reader.name
            folder.mkdir(parents=True, exist_ok=True)
            name = hashlib.sha256(where.encode()).hexdigest()[:12]
            (folder / f"{name}.txt").write_bytes(text.encode("utf-8", "surrogatepass"))

    def report(self) -> str:
        lines = [
            f"{name}: {count} documents, slowest {1000 * self.slowest.get(name, 0):.0f} ms of CPU"
            for name, count in sorted(self.tried.items())
        ]
        lines += [f"  {count} x {where}" for where, count in self.repeated.items()]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        total = f"{self.tried.total()} documents, {self.repeated.total()} failures"
        return "\n".join([*lines, f"{total}, {peak} MiB at most"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=1.0)
    arguments.add_argument("--reader", default="")
    arguments.add_argument("--seed", type=int, default=0)
    asked = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # Powertools, of functions with no metrics to tell
    prepare(setattr)
    chosen = [each for each in READERS if asked.reader in ("", each.name)]
    findings, until = Findings(), time.monotonic() + 60 * asked.minutes
    for seed in itertools.count(asked.seed):
        if time.monotonic() > until:
            break
        for reader in chosen:
            findings.run(reader, seed)
        if seed % 1000 == 999:
            print(findings.report(), flush=True)
    print(findings.report(), flush=True)


if __name__ == "__main__":
    main()
