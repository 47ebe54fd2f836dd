"""Waits for a workload in Airflow's triggerer, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from sluice.client.asynchronous import AsyncClient
from sluice.client.errors import ControlPlaneUnavailableError, ObjectNotFoundError

DEFERRED = "deferred"
MISSING_SECONDS = 600
"""After which a submission that nobody has recorded is given up."""


class SluiceTrigger(BaseTrigger):
    """Ends with an event `{"workload": ID, "phase": PHASE}` once the workload has reached `goal`.

    With `cancels`, the workload is cancelled if its task is ended by a user meanwhile; a triggerer
    that is stopped leaves it alone.
    """

    def __init__(
        self,
        *,
        workload: str,
        goal: str = "finished",
        poll_seconds: float = 10.0,
        cancels: bool = True,
        profile: str | None = None,
        api_url: str | None = None,
    ) -> None:
        super().__init__()
        self.workload = workload
        self.goal = goal
        self.poll_seconds = poll_seconds
        self.cancels = cancels
        self.profile = profile
        self.api_url = api_url

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "workload": self.workload,
                "goal": self.goal,
                "poll_seconds": self.poll_seconds,
                "cancels": self.cancels,
                "profile": self.profile,
                "api_url": self.api_url,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        client = AsyncClient(profile=self.profile, api_url=self.api_url)
        phase, missing = "", 0.0
        try:
            while missing < MISSING_SECONDS:
                try:
                    status = await client.get(self.workload)
                except ControlPlaneUnavailableError as error:
                    self.log.info("workload %s: %s", self.workload, error)
                except ObjectNotFoundError:
                    missing += self.poll_seconds
                    self.log.info("workload %s is not recorded yet", self.workload)
                else:
                    if status.phase != phase:
                        phase = status.phase
                        self.log.info("workload %s is %s", self.workload, phase)
                    if status.reached(self.goal):
                        yield TriggerEvent({"workload": self.workload, "phase": phase})
                        return
                await asyncio.sleep(self.poll_seconds)
            yield TriggerEvent({"workload": self.workload, "phase": "MISSING"})
        except asyncio.CancelledError:
            if self.cancels and await self._task_was_ended():
                await client.cancel(self.workload, reason="its Airflow task was ended")
            raise

    async def _task_was_ended(self) -> bool:
        """Whether the task waits no longer, as after clearing it or marking it failed."""
        from airflow.sdk.execution_time.task_runner import (  # noqa: PLC0415 - only in a triggerer
            RuntimeTaskInstance,
        )

        task = self.task_instance
        if task is None:
            return False
        # asgiref's, not asyncio.to_thread: the triggerer's channel to its parent needs the loop.
        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=task.dag_id,
            task_ids=[task.task_id],
            run_ids=[task.run_id],
            map_index=task.map_index,
        )
        return bool(states.get(task.run_id, {}).get(task.task_id) != DEFERRED)
