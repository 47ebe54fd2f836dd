"""EC2's events, put on the default bus of the embedded AWS."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moto.ec2.models.instances import Instance

log = logging.getLogger(__name__)


class EventBus:
    """Posts EC2's events to MiniStack's default bus, in order, without holding up the EC2 API."""

    def __init__(self, aws: str) -> None:
        self.url = f"{aws}/_local/aws-events"
        self.waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._deliver, name="events", daemon=True).start()

    def put(self, detail_type: str, instance: Instance, at: float, **detail: str) -> None:
        """Queue one event; `at` becomes its `time`, from which receivers reckon deadlines."""
        zone = instance.availability_zone
        self.waiting.put(
            {
                "Source": "aws.ec2",
                "DetailType": detail_type,
                "Time": at,
                "Resources": [f"arn:aws:ec2:{zone}:instance/{instance.id}"],
                "Detail": json.dumps({"instance-id": instance.id, **detail}),
            }
        )

    def _deliver(self) -> None:
        while True:
            body = json.dumps({"Entries": [self.waiting.get()]}).encode()
            for pause in (0.5, 2, 5, None):  # events are best effort, on AWS as well
                try:
                    urllib.request.urlopen(self.url, data=body, timeout=10).close()
                    break
                except OSError as error:
                    log.warning("event not delivered: %s", error)
                    if pause is not None:
                        time.sleep(pause)
