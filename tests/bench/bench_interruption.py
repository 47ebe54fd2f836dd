"""What an interruption costs: at best, with Sluice, with Karpenter alone, and with neither.

    python -m tests.bench.bench_interruption [--moves 10] [--losses 3] [--megabytes 50]

One embedded stack and one counting program (tests/ticking), whose own trace tells in each case how
much work was lost, when it ran again, and how long nothing ran. Plain Jobs are measured before
Sluice is deployed, with Karpenter's interruption queue on and off; then Sluice without that queue.
The start of an instance (2 s here, 35 to 60 s on EC2) is part of all lines alike.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import boto3

from local.endpoints import Endpoints
from local.node.criu import probe
from local.settings import CLONE, Layout, default_cache
from tests.bench.bare_criu import dumped_and_restored
from tests.bench.interrupted import Cost, Orders, PlainJob, SluiceJob, cost, middle
from tests.e2e.stack import BUCKET, KARPENTERS_QUEUE, TENANTS, Stack
from tests.ticking import trace

SLUICE = Path(sys.executable).with_name("sluice")
INSTANCE_SECONDS = 2.0
HEAD_START_SECONDS = 20.0  # how long a job has worked when its machine is warned
PAUSE_SECONDS = 3.0  # between one move of a job and the next


def say(text: str) -> None:
    print(text, flush=True)


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


@contextlib.contextmanager
def stack(folder: Path) -> Iterator[Endpoints]:
    """A stack without Sluice, whose Karpenter reads a queue of its own."""
    os.environ["SLUICE_STATE"] = str(folder)
    options = ["--no-deploy", "--karpenter-queue", KARPENTERS_QUEUE]
    delay = ["--instance-delay", str(INSTANCE_SECONDS)]
    try:
        subprocess.run([SLUICE, "local", "up", *options, *delay], cwd=CLONE, check=True)
        yield Endpoints.read(Layout(folder).endpoints)
    finally:
        subprocess.run([SLUICE, "local", "down"], cwd=CLONE, check=False)


def without_sluice(endpoints: Endpoints, traces: Path) -> tuple[Cost, Cost]:
    """A plain Job with Karpenter's queue alone, and one with neither, side by side."""
    events: Any = boto3.client(
        "events",
        endpoint_url=endpoints.aws,
        region_name=endpoints.region,
        aws_access_key_id=endpoints.access_key_id,
        aws_secret_access_key=endpoints.secret_access_key,
    )
    events.disable_rule(Name=KARPENTERS_QUEUE)
    neither = PlainJob(endpoints, traces / "neither")
    unheard = neither.warned(HEAD_START_SECONDS)
    time.sleep(PAUSE_SECONDS)  # its warning must not be heard after all
    events.enable_rule(Name=KARPENTERS_QUEUE)
    karpenter = PlainJob(endpoints, traces / "karpenter-alone")
    alone = karpenter.cost(karpenter.warned(HEAD_START_SECONDS))
    events.disable_rule(Name=KARPENTERS_QUEUE)
    karpenter.end()
    nobody = neither.cost(unheard)
    neither.end()
    return alone, nobody


def at_best(criu: Any, folder: Path, megabytes: int) -> Cost:
    """CRIU alone, from memory to disk and back."""
    ticks, size = dumped_and_restored(criu, folder, megabytes)
    found = trace.longest_break(ticks)
    say(f"CRIU alone, {size / 1e6:.0f} MB:".ljust(34) + str(cost(ticks, found.before.at)))
    return cost(ticks, found.before.at)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--moves", type=int, default=10, help="of a job that is dumped")
    parser.add_argument("--losses", type=int, default=3, help="machines that end unannounced")
    parser.add_argument("--megabytes", type=int, default=50, help="memory that the job holds")
    chosen = parser.parse_args()
    criu = probe(None, default_cache())
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        traces = Path(folder) / "traces"
        traces.mkdir()
        with stack(Path(folder) / "state") as endpoints:
            alone, nobody = without_sluice(endpoints, traces)
            subprocess.run([SLUICE, "local", "up"], cwd=CLONE, check=True)
            deployed = Stack(endpoints)
            deployed.apply(*TENANTS)
            deployed.client("s3").create_bucket(Bucket=BUCKET)
            queue = deployed.queue("8")
            orders, latencies = Orders(endpoints), list[float]()

            def interrupted(mode: str, times: int, action: str = "interrupt") -> list[Cost]:
                path = traces / f"{mode}-{action}"
                job = SluiceJob(deployed, queue, path, mode, chosen.megabytes)
                costs = [job.interrupted(action, HEAD_START_SECONDS)]
                for _ in range(times - 1):
                    time.sleep(PAUSE_SECONDS)
                    costs.append(job.interrupted(action, HEAD_START_SECONDS))
                job.end()
                latencies.extend(
                    orders.seen[pod] - at for pod, at in job.warned.items() if pod in orders.seen
                )
                return costs

            say(f"a job that had worked for {HEAD_START_SECONDS:.0f} s; medians:")
            say("neither, a plain Job:".ljust(34) + str(nobody))
            say("Karpenter's queue, a plain Job:".ljust(34) + str(alone))
            best = at_best(criu, Path(folder), chosen.megabytes) if criu.program else None
            for mode, times in (("none", 1), ("application", 3)):
                found = middle(interrupted(mode, times))
                say(f"Sluice, {mode} ({times} moves):".ljust(34) + str(found))
            if best is None:
                say(f"Sluice, kubelet: not here: {criu.reason}")
            else:
                dumped = middle(interrupted("kubelet", chosen.moves))
                say(f"Sluice, kubelet ({chosen.moves} moves):".ljust(34) + str(dumped))
                say(
                    f"standstill of a dump against CRIU alone:"
                    f" {dumped.standstill / best.standstill:.1f} times"
                )
            losses = interrupted("none", chosen.losses, "terminate")
            waited = [each.again - INSTANCE_SECONDS for each in losses]
            say(
                f"unannounced end → running again, without the instance's start:"
                f" median {median(waited):.1f} s, worst {max(waited):.1f} s ({len(losses)} losses)"
            )
            say(
                f"warning → order at the node: p50 {percentile(latencies, 50):.2f} s,"
                f" p99 {percentile(latencies, 99):.2f} s ({len(latencies)} warnings)"
            )


if __name__ == "__main__":
    main()
