"""Writes down what the code of a checkout stores while work goes on: run it in older checkouts.

    cd OLDER_CHECKOUT && PYTHONPATH=.:layers/sluice/python python …/capture.py > COMMIT.jsonl

One workload of each driver runs, waits, or moves off a machine that is warned; whenever its record
or the account of its move enters another stage, everything that is stored is written down: items as
DynamoDB has them, and the cluster's objects. Only names that have been there since moves exist are
imported, so that this file works in every version. `test_older_records.py` reads the results.
"""

import json
from typing import Any

from sluice.adapters.attribute_values import to_item
from sluice.adapters.dynamodb_migrations import DynamoDBMigrations
from sluice.adapters.workload_items import item_of

from tests.unit.migration.town import Town

MODES = ("application", "kubelet")
TURNS = 12


class Table:
    """A table of DynamoDB, as far as the adapters' puts and consistent reads go."""

    class exceptions:  # noqa: N801 - boto3's name
        class ConditionalCheckFailedException(Exception):
            pass

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def put_item(self, **request: Any) -> None:
        self.items[request["Item"]["id"]["S"]] = request["Item"]

    def get_item(self, **request: Any) -> Any:
        item = self.items.get(request["Key"]["id"]["S"])
        return {"Item": item} if item else {}


def stored(town: Any) -> dict[str, Any]:
    """All that outlives the Lambdas."""
    table = Table()
    adapter = DynamoDBMigrations(table, "migrations")  # type: ignore[arg-type]  # a part of it
    for move in town.migrations.rows.values():
        adapter.create(move)
    for name in town.workloads.rows:
        for checkpoint in reversed(town.migrations.checkpoints(name)):
            adapter.keep(checkpoint, retain=10)
    ledger = town.ledgers.read("cohort")
    return {
        "at": town.clock.now(),
        "workloads": [item_of(row) for row in town.workloads.rows.values()],
        "migrations": list(table.items.values()),
        "ledger": to_item({"version": ledger.version, "usage": ledger.usage}),
        "manifests": town.manifests.get_many(
            row.manifest_key for row in town.workloads.rows.values()
        ),
        "nodes": {key: list(rows.values()) for key, rows in town.nodes.rows.items()},
        "objects": list(town.kubernetes.objects.values()),
    }


def stage(town: Any) -> str:
    row = town.row("w")
    moves = [move.stage.value for move in town.migrations.rows.values()]
    name = f"{row.state.value}-{row.generation}" + "".join(f"-{each}" for each in moves)
    return name + ("-started" if row.started_at else "")


def history(mode: str) -> dict[str, Any]:
    """Stage → what was stored when it was entered."""
    town: Any = Town()  # of that version, whatever it has
    town.submit("w", "a", 1, mode=mode)
    town.submit("waits", "a", 40)
    found: dict[str, Any] = {}

    def look() -> None:
        found.setdefault(stage(town), json.loads(json.dumps(stored(town))))

    def looking(write: Any) -> Any:
        def written(*arguments: Any) -> Any:
            answer = write(*arguments)
            look()
            return answer

        return written

    # Not only between turns: whoever is replaced may be in the middle of one.
    town.workloads.write = looking(town.workloads.write)
    town.migrations.apply = looking(town.migrations.apply)
    look()
    node = start(town)
    town.hear(town.notice(node))
    for _ in range(TURNS):
        town.save()
        town.clock.pass_ms(10_000)
        town.kubernetes.provide()
        for turn in (town.tell, town.sweep, town.admit, town.observe, town.drain):
            turn()
        town.obey("w")
    return found


def start(town: Any) -> str:
    """Let `w` run; the name of its node."""
    town.admit()
    town.obey("w")
    town.observe()
    (node,) = {
        each["spec"]["nodeName"]
        for (kind, _, _), each in town.kubernetes.objects.items()
        if kind == "Pod" and each["metadata"]["labels"].get("sluice.dev/workload") == "w"
    }
    return str(node)


def main() -> None:
    lines = [
        json.dumps({"mode": mode, "stage": name, **stored}, separators=(",", ":"), sort_keys=True)
        for mode in MODES
        for name, stored in history(mode).items()
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
