"""A control plane on tables that are as strict as DynamoDB's, for hostile documents."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from sluice.adapters.workload_items import item_of, workload_of
from sluice.api.responses import refusal_response, response
from sluice.core.lifecycle.record import State, Workload
from sluice.core.values.identity import workload_id
from sluice.usecases.request_errors import RequestError

from functions import submit
from tests.fakes import InlineExecutor, MemoryWorkloads
from tests.unit.api.control_plane import (
    ACCOUNT,
    BLUE,
    COMPANY,
    RED,
    ControlPlane,
    native,
)
from tests.unit.functions.events import REGION, sqs

BUDGET_SECONDS = 3.0
"""CPU seconds that one document of the grammar (at most 64 KB or so) may cost its reader."""
ITEM_BYTES, DIGITS = 400 * 1024, 38
Text = str


class StoredWorkloads(MemoryWorkloads):
    """Takes only what DynamoDB takes, and gives back what it would give back."""

    def write(self, workload: Workload) -> None:
        item = item_of(workload)
        check_item(item)
        super().write(workload_of(item))


def check_item(item: Any) -> None:
    """Raises AssertionError for what DynamoDB refuses: its size, its numbers, its texts."""
    text = json.dumps(item, ensure_ascii=False)
    assert len(text.encode()) < ITEM_BYTES, "no item of DynamoDB is as large"
    for number in _numbers(item):
        digits = number.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
        assert len(digits) <= DIGITS, "no number of DynamoDB has as many digits"
        assert number not in ("nan", "inf", "-inf"), f"DynamoDB knows no {number}"


def _numbers(item: Any) -> list[str]:
    if isinstance(item, dict):
        own = [item["N"]] if isinstance(item.get("N"), str) else []
        return own + [n for inner in item.values() for n in _numbers(inner)]
    return [n for inner in item for n in _numbers(inner)] if isinstance(item, list) else []


class Desk(ControlPlane):
    """The control plane of two teams on tables that are as strict as DynamoDB's."""

    def __init__(self, objects: tuple[dict[str, Any], ...] = COMPANY) -> None:
        super().__init__(objects)
        strict = StoredWorkloads()
        self.workloads.write = partial(StoredWorkloads.write, strict)  # type: ignore[method-assign]
        strict.rows, strict.changed = self.workloads.rows, self.workloads.changed
        pool: Any = InlineExecutor()
        self.submit = replace(self.submit, pool=pool, fetching=pool)
        self.admit = replace(self.admit, pool=pool)

    def message(self, body: str, *, queue: str = "submissions") -> None:
        """One batch of a stranger's body and a neighbour's good document; neither comes again."""
        good = json.dumps(native("good", 1, key="good", namespace="blue"))
        batch = sqs(body, good, queue="submissions")["Records"]
        for record, sender in zip(batch, (RED, BLUE), strict=True):
            record["attributes"]["SenderId"] = sender.iam["userId"]
        batch[0]["eventSourceARN"] = f"arn:aws:sqs:{REGION}:1:{queue}"
        for failure in self.submit([submit.message_of(record) for record in batch]).failed:
            raise failure.error
        assert self.workloads.rows[workload_id("blue", "good")].state is State.PENDING
        assert len(self.workloads.rows) > 1, "the message left no record"

    def go_on(self) -> None:
        """What was accepted is admitted, rendered and created; none of it stops the others."""
        self.settle()
        ids = self.workloads.active("batch-1")
        if ids:
            self.act_use_case()("batch-1", ids)
        self.settle()
        state = self.workloads.rows[workload_id("blue", "good")].state
        assert state is State.DISPATCHED, f"the neighbour is {state}"

    def ask(self, event: dict[str, Any]) -> tuple[int, Any]:
        """As the function `api` answers; what would be a status of 500 there is raised here."""
        try:
            answered = response(200, self.api(event, account=ACCOUNT))
        except RequestError as error:
            answered = refusal_response(error)
        answered["body"].encode()
        return answered["statusCode"], json.loads(answered["body"])
