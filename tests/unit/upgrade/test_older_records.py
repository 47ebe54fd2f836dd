"""What older code stored while work went on is read, carried on and ended by the code of today.

Each file of `records` holds what the commit of its name had stored at every step of a run and of a
move, written by `capture.py` with that commit's own code. Here today's Lambdas find it so, as after
a deployment in that very moment.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from sluice.adapters.attribute_values import from_item
from sluice.adapters.migration_items import to_checkpoint, to_migration
from sluice.adapters.workload_items import item_of, workload_of
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State
from sluice.core.migrations.checkpointing import CheckpointEntries
from sluice.core.migrations.pod_annotations import DONE, annotations_of
from sluice.core.values.plain import from_stored
from sluice.ports import LedgerState

from tests.fakes import JOB_NAME, owner_of
from tests.unit.migration.town import Town
from tests.unit.usecases.world import ROOT

RECORDS = Path(__file__).with_name("records")
FOUND = [
    pytest.param(stored, id=f"{file.stem}-{stored['mode']}-{stored['stage']}")
    for file in sorted(RECORDS.glob("*.jsonl"))
    for stored in map(json.loads, file.read_text().splitlines())
]


def taken_over(stored: dict[str, Any]) -> Town:
    """The world in which older code left what it stored."""
    town = Town()
    town.clock.time = stored["at"]
    town.workloads.rows = {row.id: row for row in map(workload_of, stored["workloads"])}
    ledger = from_item(stored["ledger"])
    town.ledgers.ledgers[ROOT] = LedgerState(ROOT, ledger["version"], 0, ledger["usage"])
    town.manifests.put_many(stored["manifests"])
    for cluster, rows in stored["nodes"].items():
        town.nodes.put_many(cluster, [from_stored(InventoryRow, row) for row in rows])
    for row in map(from_item, stored["migrations"]):
        if row["id"].startswith("checkpoints#"):
            name = row["id"].partition("#")[2]
            kept = tuple(to_checkpoint(name, entry) for entry in row["entries"])
            town.migrations.catalogue[name] = CheckpointEntries(kept)
            town.saved_seen |= {one.source for one in kept}
        else:
            town.migrations.rows[row["id"]] = to_migration(row)
    town.kubernetes.numbers = itertools.count(1000)
    for each in stored["objects"]:
        metadata = each["metadata"]
        key = (each["kind"], metadata.get("namespace", ""), metadata["name"])
        town.kubernetes.objects[key] = each
        if each["kind"] == "Pod" and metadata["namespace"] == "team":
            # Kubernetes always sets these; the fakes of older commits did not.
            of = metadata["labels"][JOB_NAME] = metadata["name"].removesuffix("-pod")
            metadata.setdefault("resourceVersion", "1")
            if job := town.kubernetes.get("Job", "team", of):
                metadata["ownerReferences"] = [owner_of(job)]
            done = json.loads(annotations_of(each).get(DONE, "{}"))
            town.saved_seen.add(done.get("uri", ""))
    return town


@pytest.mark.parametrize("stored", FOUND)
def test_work_under_way_goes_on_and_ends_once(stored: dict[str, Any]) -> None:
    town = taken_over(stored)
    town.check()
    moving = bool(town.migrations.rows)

    town.save()
    town.pass_quietly(180)

    row = town.row("w")
    assert (row.state, row.generation) == (State.DISPATCHED, int(moving))
    assert row.started_at
    assert town.kubernetes.running() == ["w"]
    if moving and stored["mode"] == "kubelet":
        assert row.restore_from, "its work is lost"
    assert town.row("waits").state is State.PENDING, "it needs all of the queue"

    town.kubernetes.finish("team", f"w-w-g{row.generation}")
    town.pass_quietly(60)

    assert town.row("w").state is State.FINISHED
    assert town.row("w").result.succeeded
    assert town.row("waits").state is State.DISPATCHED, "the quota of the first came back"


@pytest.mark.parametrize("stored", FOUND)
def test_nothing_that_was_stored_is_lost_when_it_is_stored_again(stored: dict[str, Any]) -> None:
    for item in stored["workloads"]:
        read = workload_of(item)

        assert workload_of(item_of(read)) == read
        assert from_item(item).keys() - from_item(item_of(read)).keys() == set()


LATER = {"of_a_later_version": {"S": "?"}}


@pytest.mark.parametrize("stored", FOUND)
def test_what_a_later_version_may_add_is_left_aside(stored: dict[str, Any]) -> None:
    for item in stored["workloads"]:
        later = {**item, **LATER}
        for name in ("reservation", "intent"):
            if name in item:
                later[name] = {"M": {**item[name]["M"], **LATER}}
        if "reservation" in later:
            sets = later["reservation"]["M"]["pod_sets"]["L"]
            added = {"L": [{"M": {**each["M"], **LATER}} for each in sets]}
            later["reservation"]["M"]["pod_sets"] = added
        assert workload_of(later) == workload_of(item)
    for item in stored["migrations"]:
        if "entries" in item:
            (entry,) = from_item(item)["entries"]
            assert to_checkpoint("w", {**entry, "later": 1}) == to_checkpoint("w", entry)
        else:
            row = from_item(item)
            saved: dict[str, Any] = {
                pod: {**part, "later": 1} for pod, part in row["saved"].items()
            }
            assert to_migration({**row, "saved": saved, "later": 1}) == to_migration(row)
