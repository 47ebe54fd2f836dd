"""First part: 64 cores, three jobs of 32. Two run, the third waits with nothing bought for it."""

import json
import time

from local.demo.mertens import mertens
from local.demo.records import DEMO, account, phase, submit
from local.demo.telling import check, say, sluice, until
from local.demo.witness import BUCKET, Witness
from local.settings import CLONE

PARTS, LAST = 3, 192_000_000


def quota_example(witness: Witness) -> None:
    witness.s3.create_bucket(Bucket=BUCKET)
    witness.s3.upload_file(str(CLONE / "examples" / "mertens.py"), BUCKET, "code/mertens.py")
    sluice("apply", "-f", str((DEMO / "quota.yaml").relative_to(CLONE)))
    ids = submit("jobs.yaml")
    began = time.monotonic()
    until("two jobs running", lambda: [*map(phase, ids)].count("RUNNING") == PARTS - 1)
    say(f"two of three jobs run, {time.monotonic() - began:.1f} s after the submission")
    sluice("ls")
    (waiting,) = (each for each in ids if phase(each) == "PENDING")
    bought = witness.nodes()
    check("the third is pending and has no pod", holds=not witness.pods(waiting))
    sluice("why", waiting)
    sluice("queues")
    sluice("capacity")
    until("the third job running", lambda: phase(waiting) in ("RUNNING", "SUCCEEDED"))
    (pod,) = witness.pods(waiting)
    check(
        f"the third runs on {pod.spec.node_name}, a node that was there already",
        holds=pod.spec.node_name in bought,
        found=pod.spec.node_name,
    )
    sluice("wait", *ids)
    parts = [witness.result(f"results/part-{number}.json") for number in range(1, PARTS + 1)]
    for number, part in enumerate(parts, start=1):
        print(f"s3://{BUCKET}/results/part-{number}.json  {json.dumps(part)}")
    found = sum(part["sum"] for part in parts)
    expected = mertens(LAST)
    check(f"the parts add up to M({LAST:,}) = {expected}", holds=found == expected, found=found)
    sluice("logs", waiting)
    account(ids)
