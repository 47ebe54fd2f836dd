"""The life of one pod on a node, whatever its containers are: status, stop, deadline, deletion."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any

from local.node.api import ApiError
from local.node.site import Site
from local.node.state import PodState

log = logging.getLogger(__name__)
DEFAULT_GRACE_SECONDS = 30


class PodRun(ABC):
    """Runs a pod to its end. All methods belong to the event loop."""

    def __init__(self, site: Site, pod: dict[str, Any], state: PodState) -> None:
        self.site, self.pod, self.state = site, pod, state
        self.stopping = asyncio.Event()
        self.ended = asyncio.Event()
        self.deleted = False  # gone from the API: nothing to report any more
        self.abandoned = False  # the machine is dead: nobody is there to report
        self._reporter: asyncio.Task[None] | None = None
        self._unreported = False

    @abstractmethod
    async def work(self) -> None:
        """Runs the containers; returns when all have ended for good."""

    @abstractmethod
    def end(self, grace_seconds: float) -> None:
        """Ends the running containers: SIGTERM, then SIGKILL; at once for a grace of 0."""

    @abstractmethod
    async def clean(self) -> None:
        """Saves what the ended pod leaves; may fail the pod by its state's reason."""

    @property
    def name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def path(self) -> str:
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    @property
    def grace_seconds(self) -> float:
        deletion = self.pod["metadata"].get("deletionGracePeriodSeconds")
        specified = self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        return float(specified if deletion is None else deletion)

    async def run(self) -> None:
        """From acceptance to the last report; sets `ended`."""
        try:
            await self._run()
        finally:
            self.ended.set()

    async def _run(self) -> None:
        if self.pod.get("status", {}).get("phase") == self.state.phase and self.state.finished:
            return  # reported in an earlier life of the node program; only its logs are asked for
        if "deletionTimestamp" in self.pod["metadata"]:
            self.stopping.set()
        deadline = self._arm_deadline()
        try:
            if not self.state.finished:
                await self.work()
        except Exception as error:
            log.exception("pod %s", self.name)
            self.fail("NodeError", f"{type(error).__name__}: {error}")
        finally:
            if deadline:
                deadline.cancel()
        if self.abandoned:
            return
        try:
            await self.clean()
        except Exception as error:
            log.exception("pod %s", self.name)
            self.fail("NodeError", f"{type(error).__name__}: {error}")
        if not self.state.finished:
            self.state.concludes()
        self.keep()
        await self._settle()

    @abstractmethod
    def keep(self) -> None:
        """Remembers the state for a restart of the node program, where that makes sense."""

    def fail(self, reason: str, message: str) -> None:
        self.state.reason, self.state.message = reason, message

    def stop(self, grace_seconds: float) -> None:
        """No container starts any more, the running ones end."""
        self.stopping.set()
        self.end(grace_seconds)

    def update(self, pod: dict[str, Any]) -> None:
        """A newer version of the pod from the API server."""
        known = self.pod["metadata"].get("deletionGracePeriodSeconds")
        self.pod = pod
        if "deletionTimestamp" not in pod["metadata"]:
            return
        if self.ended.is_set():  # the deletion crossed the last report
            self._removal = asyncio.create_task(self.remove())
        elif known != pod["metadata"]["deletionGracePeriodSeconds"]:
            self.stop(self.grace_seconds)

    def vanish(self) -> None:
        """The pod was deleted from the API by force: its containers must not go on."""
        self.deleted = True
        self.stop(0)

    def abandon(self) -> None:
        """The machine under it is gone: everything dies at once and nobody reports it."""
        self.abandoned = True
        self.stop(0)

    async def pause(self, seconds: float) -> bool:
        """Waits; True if the pod is being stopped."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)
        return self.stopping.is_set()

    def report(self) -> None:
        """Sends the present state soon; several changes may travel in one request."""
        self._unreported = True
        if self._reporter is None or self._reporter.done():
            self._reporter = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._unreported and not self.deleted and not self.abandoned:
            self._unreported = False
            body = {"metadata": {"uid": self.state.uid}, "status": self.state.status()}
            try:
                await self.site.call(self.site.api.patch, f"{self.path}/status", body)
            except ApiError as error:
                if error.status in (404, 409):  # deleted, or replaced by another of its name
                    return
                log.warning("status of %s: %s", self.name, error)
                self._unreported = True
                await asyncio.sleep(1)

    async def _settle(self) -> None:
        self.report()
        if self._reporter:
            await self._reporter
        if "deletionTimestamp" in self.pod["metadata"]:
            await self.remove()

    async def remove(self) -> None:
        """The kubelet's last word on a deleted pod: it may disappear now."""
        if not self.deleted and not self.abandoned:
            delete = self.site.api.delete
            await self.site.call(delete, self.path, uid=self.state.uid, grace_seconds=0)

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return None
        started = datetime.strptime(self.state.started_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        spent = (datetime.now(UTC) - started).total_seconds()
        return asyncio.get_running_loop().call_later(max(0, seconds - spent), self._expire)

    def _expire(self) -> None:
        self.fail("DeadlineExceeded", "Pod was active on the node longer than its deadline")
        self.stop(self.grace_seconds)
