"""Workload records as DynamoDB items: only what differs from the default is stored, and that once.

A write costs a unit for each KB of the whole item, in a transaction two; most records are a little
smaller than one (docs/decisions/0012-cost-of-a-job.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sluice.adapters.attribute_values import from_item, to_item
from sluice.core.lifecycle.indexes import INDEXES, index_keys
from sluice.core.lifecycle.record import (
    Change,
    Guard,
    Reservation,
    Workload,
    after,
)
from sluice.core.lifecycle.record_entries import NO_RESULT
from sluice.core.lifecycle.run import EVERY_RUN, Run
from sluice.core.values.plain import from_stored, to_plain

FIELDS = Workload.__slots__
REQUIRED = ("id", "name", "namespace", "queue")
ALWAYS = ("state", "generation")  # stored even where they are what a new record has
# What a record says of its present generation, so that neither its run nor its quota repeats it.
OF_THE_RUN = ("cluster", "admitted_at", "dispatched_at", "started_at")
OF_THE_RESERVATION = ("generation", "cluster")


def to_record(workload: Workload) -> dict[str, Any]:
    """The record with its index attributes, as plain values."""
    fields = {name: stored(name, getattr(workload, name), workload) for name in FIELDS}
    kept = {name: value for name, value in fields.items() if value or name in ALWAYS}
    return kept | index_keys(workload)


def stored(name: str, value: object, record: Workload) -> Any:
    """The value of a field of this record, without what other fields of it say."""
    if isinstance(value, Reservation):
        return _lean(to_plain(value), OF_THE_RESERVATION, record)
    if name == "runs" and isinstance(value, tuple):
        return [_lean_run(run, record) for run in value]
    return {} if value == NO_RESULT else to_plain(value)


def _lean_run(run: Run, record: Workload) -> Any:
    row = {name: getattr(run, name) for name in EVERY_RUN} | to_plain(run)
    return _lean(row, OF_THE_RUN, record) if run.generation == record.generation else row


def _lean(values: Any, repeated: Sequence[str], record: Workload) -> dict[str, Any]:
    said = {name: getattr(record, name) for name in repeated}
    return {name: value for name, value in values.items() if said.get(name) != value}


def to_workload(record: Mapping[str, Any]) -> Workload:
    """Inverse of `to_record`; unknown attributes are left aside: old code reads new items."""
    # Whoever nobody knows has a record too: without name and namespace.
    values: dict[str, Any] = dict.fromkeys(REQUIRED, "")
    values |= {name: record[name] for name in FIELDS if name in record}
    if reservation := record.get("reservation"):
        repeated = {"generation": record["generation"], "cluster": record.get("cluster", "")}
        values["reservation"] = repeated | dict(reservation)
    values["runs"] = [_whole_run(run, record) for run in record.get("runs", ())]
    return from_stored(Workload, values)


def _whole_run(run: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    if run["generation"] != record["generation"]:
        return run
    blank = {"cluster": ""}
    return {name: record.get(name, blank.get(name, 0)) for name in OF_THE_RUN} | dict(run)


def workload_of(item: Mapping[str, Any]) -> Workload:
    return to_workload(from_item(item))


def item_of(workload: Workload) -> dict[str, Any]:
    return to_item(to_record(workload))


def update_of(change: Change) -> dict[str, Any]:
    """The arguments that `Update` and `UpdateItem` share: expressions, names and values."""
    record = after(change)
    old, new = index_keys(change.before), index_keys(record)
    values_now = {name: stored(name, value, record) for name, value in change.set.items()}
    sets = {name: value for name, value in values_now.items() if value or name in ALWAYS}
    sets |= {name: value for name, value in new.items() if old.get(name) != value}
    removes = [*change.remove, *(name for name in values_now if name not in sets)]
    removes += [name for name in INDEXES if name in old and name not in new]
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    clauses = []
    for position, (name, value) in enumerate(sets.items()):
        names[f"#s{position}"], values[f":s{position}"] = name, value
        clauses.append(f"#s{position} = :s{position}")
    for position, (name, element) in enumerate(change.append.items()):
        lean = _lean_run(element, record) if name == "runs" else to_plain(element)
        names[f"#a{position}"], values[f":a{position}"] = name, [lean]
        values[":none"] = []
        clauses.append(
            f"#a{position} = list_append(if_not_exists(#a{position}, :none), :a{position})"
        )
    expression = f"SET {', '.join(clauses)}" if clauses else ""
    for position, name in enumerate(removes):
        names[f"#r{position}"] = name
    if removes:
        listed = ", ".join(f"#r{position}" for position in range(len(removes)))
        expression += f" REMOVE {listed}"
    condition = _condition(change.guard, names, values)
    return {
        "Key": to_item({"id": change.before.id}),
        "UpdateExpression": expression.strip(),
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": to_item(values),
    }


def _condition(guard: Guard, names: dict[str, str], values: dict[str, Any]) -> str:
    names |= {"#state": "state", "#generation": "generation"}
    states = {f":state{i}": state.value for i, state in enumerate(guard.states)}
    values |= states | {":generation": guard.generation}
    terms = [f"#state IN ({', '.join(states)})", "#generation = :generation"]
    if guard.uid:
        names["#uid"], values[":uid"] = "uid", guard.uid
        terms.append("#uid = :uid")
    elif guard.uid is not None:
        names["#uid"] = "uid"
        terms.append("attribute_not_exists(#uid)")
    for i, name in enumerate(guard.present):
        names[f"#p{i}"] = name
        terms.append(f"attribute_exists(#p{i})")
    for i, name in enumerate(guard.absent):
        # Records of older versions hold False where a flag was taken back.
        names[f"#n{i}"], values[":false"] = name, False
        terms.append(f"(attribute_not_exists(#n{i}) OR #n{i} = :false)")
    if guard.intent is not None:
        names |= {"#intent": "intent", "#kind": "kind"}
        values[":intent"] = guard.intent.value
        terms.append("#intent.#kind = :intent")
    return " AND ".join(terms)
