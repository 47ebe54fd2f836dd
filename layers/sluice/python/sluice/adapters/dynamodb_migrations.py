"""The table Migrations: moves, the notices that caused them, and each workload's checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.migration_items import (
    checkpoint_row,
    to_checkpoint,
    to_migration,
    to_record,
)
from sluice.core.migrations.checkpointing import Checkpoint, CheckpointEntries, SaveFailure
from sluice.core.values.plain import from_stored, to_plain

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from sluice.core.migrations.interruption import Notice
    from sluice.core.migrations.migration import Migration, MigrationStep

ATTEMPTS = 5


@dataclass(frozen=True)
class DynamoDBMigrations:
    """Keys: `<workload>#<generation>`, `notice#…` and `checkpoints#<workload>`."""

    client: DynamoDBClient
    table: str

    def note(self, key: str, notice: Notice) -> bool:
        row = {"id": key, "at": notice.at, "event": notice.event}
        return self._put_new(to_item(row)) is None

    def create(self, migration: Migration) -> Migration:
        existing = self._put_new(to_item(to_record(migration)))
        return migration if existing is None else to_migration(from_item(existing))

    def get(self, migration_id: str) -> Migration | None:
        item = self._get(migration_id)
        return to_migration(from_item(item)) if item else None

    def apply(self, steps: Sequence[MigrationStep]) -> list[bool]:
        return [self._apply(step) for step in steps]

    def checkpoints(self, workload_id: str) -> list[Checkpoint]:
        return list(self._catalogue(workload_id)[0].kept)

    def dropped(self, workload_id: str) -> list[Checkpoint]:
        return list(self._catalogue(workload_id)[0].dropped)

    def keep(self, checkpoint: Checkpoint, *, retain: int, pinned: str = "") -> None:
        self._edit(checkpoint.workload, lambda old: old.keep(checkpoint, retain, pinned))

    def fail(self, workload_id: str, source: str, generation: int, why: str) -> None:
        self._edit(workload_id, lambda old: old.fail(source, generation, why))

    def refuse(self, workload_id: str, failure: SaveFailure) -> None:
        self._edit(workload_id, lambda old: old.refuse(failure))

    def refused(self, workload_id: str) -> SaveFailure | None:
        return self._catalogue(workload_id)[0].refused

    def drop(self, workload_id: str) -> None:
        self._edit(workload_id, lambda old: old.drop())

    def forget(self, workload_id: str, checkpoints: Sequence[Checkpoint]) -> None:
        self._edit(workload_id, lambda old: old.forget(checkpoints))

    def _edit(
        self, workload_id: str, change: Callable[[CheckpointEntries], CheckpointEntries]
    ) -> None:
        """Read, change, and write back if nobody else did; a lost race is read again."""
        for _ in range(ATTEMPTS):
            old, version = self._catalogue(workload_id)
            new = change(old)
            if new == old or self._replace(workload_id, new, version):
                return

    def _catalogue(self, workload_id: str) -> tuple[CheckpointEntries, int]:
        row = from_item(self._get(catalogue_key(workload_id)) or {})
        kept, dropped = (
            tuple(to_checkpoint(workload_id, entry) for entry in row.get(name, ()))
            for name in ("entries", "dropped")
        )
        stored = row.get("refused")
        refused = from_stored(SaveFailure, stored) if stored else None
        return CheckpointEntries(kept, dropped, refused), int(row.get("version", 0))

    def _replace(self, workload_id: str, catalogue: CheckpointEntries, version: int) -> bool:
        row = {
            "id": catalogue_key(workload_id),
            "entries": [checkpoint_row(each) for each in catalogue.kept],
            "dropped": [checkpoint_row(each) for each in catalogue.dropped],
            "version": version + 1,
        }
        if catalogue.refused:
            row["refused"] = to_plain(catalogue.refused)
        try:
            self.client.put_item(
                TableName=self.table,
                Item=to_item(row),
                ConditionExpression="attribute_not_exists(id) OR #version = :version",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues=to_item({":version": version}),
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _get(self, key: str) -> dict[str, Any] | None:
        answer = self.client.get_item(
            TableName=self.table, Key=to_item({"id": key}), ConsistentRead=True
        )
        return answer.get("Item")

    def _put_new(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """None if the item is new, else the one that stands in its place."""
        try:
            self.client.put_item(
                TableName=self.table,
                Item=item,
                ConditionExpression="attribute_not_exists(id) OR called_off = :true",
                ExpressionAttributeValues={":true": {"BOOL": True}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as error:
            existing: Any = error.response.get("Item")
            return dict(existing)
        return None

    def _apply(self, step: MigrationStep) -> bool:
        names = {f"#{name}": name for name in step.set} | {"#stage": "stage"}
        values = {f":{name}": to_plain(value) for name, value in step.set.items()}
        stages = {f":in{place}": stage.value for place, stage in enumerate(step.stages)}
        changes = ", ".join(f"#{name} = :{name}" for name in step.set)
        first = ""
        if step.once:
            names[f"#{step.once}"] = step.once
            values[":untold"] = 0
            first = f" AND (attribute_not_exists(#{step.once}) OR #{step.once} = :untold)"
        if step.unchanged:
            names["#unchanged"] = step.unchanged
            values[":unchanged"] = to_plain(getattr(step.before, step.unchanged))
            first += " AND #unchanged = :unchanged"
        try:
            self.client.update_item(
                TableName=self.table,
                Key=to_item({"id": step.before.id}),
                UpdateExpression=f"SET {changes}",
                ConditionExpression=f"#stage IN ({', '.join(stages)}){first}",
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=to_item(values | stages),
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def catalogue_key(workload_id: str) -> str:
    return f"checkpoints#{workload_id}"
