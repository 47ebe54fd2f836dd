"""Migrations and checkpoints as DynamoDB items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.core.lifecycle.options import CheckpointMode
from sluice.core.migrations.checkpointing import CheckpointAction
from sluice.core.migrations.migration import Migration, PodCheckpoint, Stage
from sluice.core.values.rows import known

FIELDS = Migration.__slots__


def plain(name: str, value: Any) -> Any:
    """One attribute as strings, numbers, lists and maps."""
    if name in ("saved", "first"):
        return {pod: each.row() for pod, each in value.items()}
    if name in ("stage", "driver", "action"):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def to_record(migration: Migration) -> dict[str, Any]:
    fields = {name: plain(name, getattr(migration, name)) for name in FIELDS}
    return {"id": migration.id} | {name: value for name, value in fields.items() if value != ""}


def to_migration(record: Mapping[str, Any]) -> Migration:
    """Inverse of `to_record`; unknown attributes are left aside."""
    values = {name: record[name] for name in FIELDS if name in record}
    values["stage"] = Stage(values["stage"])
    values["driver"] = CheckpointMode(values["driver"])
    values["action"] = CheckpointAction(values["action"])
    values["pods"] = tuple(values.get("pods", ()))
    for name in ("saved", "first"):
        values[name] = {
            pod: PodCheckpoint(**known(PodCheckpoint, row))
            for pod, row in values.get(name, {}).items()
        }
    return Migration(**values)
