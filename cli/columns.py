"""The columns of workloads, in tables and in the live view."""

from collections import Counter
from collections.abc import Callable, Sequence

from cli.figures import amounts, between, cost, dollars, span
from cli.output import Column, Row


def workload_columns(now_ms: int) -> list[Column]:
    """Columns of `ls`; times are relative to `now_ms`."""

    def text(name: str) -> Callable[[Row], str]:
        return lambda row: str(row.get(name) or "")

    def waited(row: Row) -> str:
        """Empty for a submission that has no record yet."""
        return span(row["waitedMs"] / 1_000) if "waitedMs" in row else ""

    def ended(row: Row) -> int:
        return int(row.get("finishedAt") or now_ms)

    def began(row: Row) -> int | None:
        """A short job may end before all its pods were seen ready."""
        return row.get("startedAt") or (row.get("finishedAt") and row.get("dispatchedAt"))

    return [
        Column("ID", text("id")),
        Column("NAME", text("name")),
        Column("QUEUE", text("queue")),
        Column("STATUS", text("phase")),
        Column("REASON", lambda row: (row.get("reason") or {}).get("code", "")),
        Column("POS", lambda row: str(row["position"]) if row.get("position") else ""),
        Column("REQUEST", lambda row: amounts(row.get("request") or {})),
        Column("WAIT", waited),
        Column("RUNTIME", lambda row: between(began(row), ended(row))),
        Column("RECOV", lambda row: str(row.get("recoveries") or 0)),
        Column("AGE", lambda row: between(row.get("createdAt"), now_ms)),
        Column("USER", text("user"), wide=True),
        Column("PRIORITY", lambda row: str(row.get("priority", 0)), wide=True),
        Column("CLUSTER", text("cluster"), wide=True),
        Column("NODEPOOL", text("nodepool"), wide=True),
        Column("INSTANCE", text("instance"), wide=True),
        Column("CAPACITY", text("capacity"), wide=True),
        Column("AZ", text("zone"), wide=True),
        Column("LAST-CKPT", lambda row: between(row.get("lastCheckpointAt"), now_ms), wide=True),
        Column("COST", lambda row: cost(row["costUsd"]) if "costUsd" in row else "", wide=True),
    ]


def heading(items: Sequence[Row]) -> str:
    """Counts of states, share of spot, cost per hour: the line above a list."""
    counts = Counter(str(item["phase"]) for item in items)
    parts = [f"{count} {phase}" for phase, count in sorted(counts.items())]
    running = [item for item in items if item.get("capacity")]
    if running:
        spot = sum(item["capacity"] == "spot" for item in running)
        parts.append(f"spot {100 * spot // len(running)} %")
    hourly = sum(float(item.get("costPerHourUsd") or 0) for item in items)
    if hourly:
        parts.append(f"{dollars(hourly)}/h")
    return " · ".join(parts)
