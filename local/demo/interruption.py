"""EC2 takes the machine of a running job away; the job goes on elsewhere, from where it was.

Once with a program that saves itself (second part), once with one that knows nothing of it and is
saved from outside, memory and all (third part).
"""

import time
from dataclasses import dataclass
from typing import Any

from local.demo.mertens import mertens
from local.demo.records import got, phase, submit
from local.demo.telling import check, say, sluice, until
from local.demo.witness import Witness
from local.node.criu import probe
from local.settings import default_cache

SAVING_ITSELF, DUMPED = 120_000_000, 60_000_000
HEAD_START_SECONDS = 10


@dataclass(frozen=True)
class Moved:
    workload: str
    heard: str  # what the program had printed before EC2's warning
    result: dict[str, Any]


def moved(witness: Witness, manifest: str, result: str) -> Moved:
    """A job that was interrupted after a head start, once it has ended."""
    (workload,) = submit(manifest)
    until("the job running", lambda: phase(workload) == "RUNNING")
    (pod,) = witness.pods(workload)
    before = pod.spec.node_name
    say(f"it runs on {before}")
    time.sleep(HEAD_START_SECONDS)
    heard = sluice("logs", workload)
    instance = witness.instance(before)
    reclaimed = witness.interrupt(instance)
    say(f"EC2 warns: {instance} is reclaimed at {reclaimed}, in two minutes")
    until("the move", lambda: got(workload).get("generation", 0) > 0)
    until("it running again", lambda: phase(workload) in ("RUNNING", "SUCCEEDED"))
    say("it runs again")
    sluice("wait", workload)
    after = {each.spec.node_name for each in witness.pods(workload)}
    check(f"it moved from {before} to {', '.join(sorted(after))}", holds=before not in after)
    return Moved(workload, heard, witness.result(result))


def check_sum(found: int, last: int) -> None:
    expected = mertens(last)
    check(f"its sum is M({last:,}) = {expected}", holds=found == expected, found=found)


def saving_itself_example(witness: Witness) -> None:
    job = moved(witness, "spot-job.yaml", "results/spot.json")
    at = job.result["resumed_at"]
    claim = f"it went on at {at:,} of {SAVING_ITSELF:,} rather than from the start"
    check(claim, holds=at > 1, found=at)
    check_sum(job.result["sum"], SAVING_ITSELF)
    sluice("events", job.workload)
    sluice("describe", job.workload)


def dumped_example(witness: Witness) -> None:
    criu = probe(None, default_cache())  # as the nodes ask, who are this machine
    if criu.program is None:
        say(f"left out: a program that saves nothing goes on elsewhere, since {criu.reason}")
        return
    job = moved(witness, "dumped-job.yaml", "results/dumped.json")
    run = job.result["run"]
    sluice("logs", job.workload)
    claim = f"run {run} of the program, which saves nothing, was never started again"
    check(claim, holds=f"run {run} " in job.heard, found=job.heard)
    check_sum(job.result["sum"], DUMPED)
    sluice("checkpoints", job.workload)
    sluice("events", job.workload)
