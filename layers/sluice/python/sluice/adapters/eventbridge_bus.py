"""Lifecycle events for users: CloudEvents 1.0 in the detail of EventBridge events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sluice.core.lifecycle.record import phase
from sluice.errors import SluiceError

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

    from sluice.core.lifecycle.happenings import Happening

BATCH = 10
SOURCE = "sluice"
DETAIL_TYPES = {
    "Rejected": "Workload Rejected",
    "AdmissionCheckRequested": "Admission Check Requested",
}
# These make `complete` look for a task that waits.
ENDS = frozenset({"Succeeded", "Failed", "Cancelled", "Rejected"})
# Of these the detail is told too.
IN_FULL = frozenset({"AdmissionCheckRequested", "WaitedTooLong"})


@dataclass(frozen=True)
class EventBridgeBus:
    """`omitted` names what nobody listens to (setting `events.omit`)."""

    client: EventBridgeClient
    name: str
    omitted: frozenset[str] = frozenset()

    def publish(self, happenings: Sequence[Happening]) -> None:
        entries = [self._entry(each) for each in happenings if each.what not in self.omitted]
        for first in range(0, len(entries), BATCH):
            answer = self.client.put_events(Entries=entries[first : first + BATCH])
            if answer["FailedEntryCount"]:
                reasons = {entry.get("ErrorCode") for entry in answer["Entries"]} - {None}
                raise SluiceError(f"EventBridge refused events: {', '.join(map(str, reasons))}")

    def _entry(self, happening: Happening) -> PutEventsRequestEntryTypeDef:
        workload = happening.workload
        what = happening.what.partition(":")[0]
        ends = what in ENDS
        detail = {
            "specversion": "1.0",
            "id": f"{workload.id}-{workload.generation}-{happening.what}-{happening.at}",
            "source": f"/sluice/{workload.namespace}",
            "type": f"dev.sluice.workload.{what.lower()}.v1",
            "subject": workload.id,
            "time": datetime.fromtimestamp(happening.at / 1000, UTC).isoformat(),
            "data": {
                "id": workload.id,
                "name": workload.name,
                "queue": workload.queue,
                "generation": workload.generation,
                "phase": phase(workload),
                "reason": workload.reason.as_json(),
                "message": happening.message,
                **(happening.detail if what in IN_FULL else {}),
                **({"completion": workload.task_key} if ends and workload.task else {}),
            },
        }
        return {
            "EventBusName": self.name,
            "Source": SOURCE,
            "DetailType": DETAIL_TYPES.get(what, "Workload State Change"),
            "Detail": json.dumps(detail),
        }
