"""Migrations and checkpoints as DynamoDB items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.core.migrations.checkpointing import Checkpoint
from sluice.core.migrations.migration import Migration
from sluice.core.values.plain import from_stored, to_plain


def to_record(migration: Migration) -> dict[str, Any]:
    """The row of a migration: `id` and `stage`, which conditions ask for, and no other default."""
    return {"id": migration.id, "stage": migration.stage.value, **to_plain(migration)}


def to_migration(record: Mapping[str, Any]) -> Migration:
    """Inverse of `to_record`; unknown attributes are left aside."""
    return from_stored(Migration, record)


def checkpoint_row(checkpoint: Checkpoint) -> dict[str, Any]:
    """The entry of a checkpoint in the list of its workload."""
    row: dict[str, Any] = to_plain(checkpoint)
    del row["workload"]
    return row


def to_checkpoint(workload: str, row: Mapping[str, Any]) -> Checkpoint:
    """Inverse of `checkpoint_row`; unknown fields are left aside."""
    return from_stored(Checkpoint, {**row, "workload": workload})
