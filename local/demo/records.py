"""The records of the demo's jobs, through the commands that a user has."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from local.demo.telling import DemoError, answer
from local.settings import CLONE

DEMO = CLONE / "examples" / "demo"


def submit(name: str) -> list[str]:
    """Ids of the workloads of one file of examples/demo, as printed by `sluice submit`."""
    file = (DEMO / name).relative_to(CLONE)
    print(f"\n$ sluice submit -f {file}")
    sent = items(answer("submit", "-f", str(file)))
    for each in sent:
        print(f"{each['id']}  {each['name']}  sent")
    return [each["id"] for each in sent]


def items(document: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["items"] if isinstance(document, dict) else document
    return found


def got(workload: str) -> dict[str, Any]:
    """The status of a workload; empty while its message is on the way."""
    try:
        found = answer("get", workload)
    except DemoError:
        return {}
    (one,) = items(found) if not isinstance(found, dict) or "items" in found else [found]
    status: dict[str, Any] = one.get("status", one)
    return status


def phase(workload: str) -> str:
    return str(got(workload).get("phase", "?"))


def account(ids: Sequence[str]) -> None:
    """Times and cost of each job, as recorded."""
    print("\nWORKLOAD       WAITED   STARTING  RAN      COST")
    for workload in ids:
        found = got(workload)
        at = [found[key] / 1000 for key in ("createdAt", "admittedAt", "startedAt", "finishedAt")]
        waited, starting, ran = (later - earlier for earlier, later in pairwise(at))
        cost = f"${found['costUsd']:.4f}" if found.get("costUsd") else "unknown"
        print(f"{workload}  {waited:5.1f} s  {starting:7.1f} s  {ran:4.1f} s  {cost}")
