"""What one observer of a large cluster holds, reads and takes; each size in a process of its own.

`python -m tests.bench.bench_observer [JOBS ...]`: one-pod Jobs, a node for ten of them. CPU seconds
are those of this machine; a function of 512 MB has about 0.29 of a core.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

LAMBDA_CORES = 0.29


def measure(jobs: int) -> dict[str, Any]:
    """One full comparison and one look ten seconds later."""
    from tests.bench.generated_cluster import (
        CLUSTER,
        STARTED_MS,
        CountedNodes,
        GeneratedAPI,
        GeneratedTable,
    )
    from tests.memory_control_plane import MemoryControlPlane

    api, table, nodes = GeneratedAPI(jobs, max(1, jobs // 10)), GeneratedTable(jobs), CountedNodes()
    plane: Any = MemoryControlPlane()
    plane.clock.time = STARTED_MS + 600_000
    plane.workloads, plane.nodes = table.workloads(), nodes
    observe = plane.observe_use_case(clusters=api)
    base, began = _peak_mb(), time.process_time()
    seen = observe.reconcile(CLUSTER, api.cluster())
    compared = time.process_time() - began
    whole = _units(table, nodes)
    plane.clock.pass_ms(10_000)
    began = time.process_time()
    observe.check(CLUSTER, api.cluster(), seen[0] if isinstance(seen, tuple) else seen)
    looked = time.process_time() - began
    made = _generating(api)
    return {
        "jobs": jobs,
        "MB before": base,
        "MB at most": _peak_mb(),
        "MB of JSON": round(api.sent / 1e6),
        "CPU s of a full comparison": round(compared - made * compared / (compared + looked), 1),
        "CPU s of a look": round(looked, 2),
        "units of a full comparison": whole,
        "units of a look": {k: v - whole.get(k, 0) for k, v in _units(table, nodes).items()},
        "calls": dict(api.calls),
    }


def _units(table: Any, nodes: Any) -> dict[str, int]:
    return dict(table.units + nodes.units)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _generating(api: Any) -> float:
    """CPU seconds that this bench itself took to make the objects."""
    from tests.bench.generated_cluster import GeneratedAPI

    again, began = GeneratedAPI(api.jobs, api.nodes), time.process_time()
    for plural in ("jobs", "pods"):
        more = "0"
        while more:
            answer = again.request("GET", f"https://x/{plural}?limit=500&continue={more}")
            more = answer.data[:200].partition(b'"continue":"')[2].partition(b'"')[0].decode()
    return time.process_time() - began


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        return
    for jobs in sys.argv[1:] or ("1000", "10000"):
        told = subprocess.run(
            [sys.executable, "-m", "tests.bench.bench_observer", "--one", jobs],
            check=False,
            capture_output=True,
            text=True,
        )
        print(told.stdout.strip() or told.stderr[-2000:], flush=True)


if __name__ == "__main__":
    main()
