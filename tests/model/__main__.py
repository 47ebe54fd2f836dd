"""Command line of the model: `python -m tests.model CONFIGURATION [--without RULE]`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields, replace

from tests.model.configuration import CONFIGURATIONS, LARGE
from tests.model.explorer import Result, explore
from tests.model.protocol import Kind
from tests.model.rules import AS_DESIGNED, Rules


def main(arguments: list[str]) -> int:
    """Searches one configuration and prints its figures; 0 means exhausted, safe and not stuck."""
    known = CONFIGURATIONS | LARGE
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("configuration", choices=sorted(known))
    parser.add_argument("--max-states", type=int, default=10_000_000)
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=sorted(rule.name for rule in fields(Rules)),
        help="switch a rule off, to see what it is for",
    )
    options = parser.parse_args(arguments)
    rules = replace(AS_DESIGNED, **dict.fromkeys(options.without, False))
    started = time.monotonic()
    result = explore(known[options.configuration], rules, options.max_states)
    sys.stdout.write(f"{describe(result)}\nseconds           {time.monotonic() - started:.0f}\n")
    return 0 if result.exhausted and not result.stuck else 1


def describe(result: Result) -> str:
    lines = [
        f"states            {result.states:,}",
        f"transitions       {result.transitions:,}",
        f"depth             {result.depth}",
        f"crash edges       {result.kinds[Kind.CRASH]:,}",
        f"lost responses    {result.kinds[Kind.LOST_RESPONSE]:,}",
        f"stale deliveries  {result.kinds[Kind.STALE]:,}",
        f"exhausted         {result.exhausted}",
    ]
    if result.violation:
        steps = " > ".join(result.violation.trace)
        lines.append(f"VIOLATION         {result.violation.fault}: {steps}")
    if result.exhausted:
        lines.append(f"ended states      {result.ended:,}")
        lines.append(f"stuck states (I4) {result.stuck:,} {' > '.join(result.stuck_trace)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
