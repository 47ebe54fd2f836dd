"""The same client with coroutines, for asyncio programs.

Requests run in threads: botocore and urllib3 have no coroutines, and both may be used from
several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

from sluice.client.client import LIST_LIMIT, Client, JobDocument

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sluice.client.connection import Connection
    from sluice.client.results import (
        LogText,
        SubmittedWorkload,
        TimelineEntry,
        WhyAnswer,
        WorkloadStatus,
    )

T = TypeVar("T")
_END: Any = object()


class AsyncClient:
    """The methods of Client as coroutines; `list` and `logs` are asynchronous iterators."""

    def __init__(
        self,
        *,
        profile: str | None = None,
        api_url: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.client = Client(profile=profile, api_url=api_url, connection=connection)

    async def submit(
        self,
        document: JobDocument | str | PathLike[str],
        *,
        namespace: str | None = None,
        idempotency_key: str | None = None,
        transport: str = "sqs",
    ) -> SubmittedWorkload:
        return await asyncio.to_thread(
            self.client.submit,
            document,
            namespace=namespace,
            idempotency_key=idempotency_key,
            transport=transport,
        )

    async def submit_all(
        self,
        documents: Iterable[JobDocument | str | PathLike[str]],
        *,
        namespace: str | None = None,
        idempotency_key: str | None = None,
        transport: str = "sqs",
    ) -> Sequence[SubmittedWorkload]:
        return await asyncio.to_thread(
            self.client.submit_all,
            documents,
            namespace=namespace,
            idempotency_key=idempotency_key,
            transport=transport,
        )

    async def get(self, workload: str) -> WorkloadStatus:
        return await asyncio.to_thread(self.client.get, workload)

    def list(
        self,
        *,
        queue: str = "",
        state: str = "",
        name: str = "",
        user: str = "",
        labels: Mapping[str, str] | None = None,
        since: datetime | None = None,
        limit: int = LIST_LIMIT,
    ) -> AsyncIterator[WorkloadStatus]:
        return _in_threads(
            self.client.list(
                queue=queue,
                state=state,
                name=name,
                user=user,
                labels=labels,
                since=since,
                limit=limit,
            )
        )

    async def wait(
        self,
        workload: str,
        *,
        goal: str = "finished",
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - as Client.wait
    ) -> WorkloadStatus:
        return await asyncio.to_thread(self.client.wait, workload, goal=goal, timeout=timeout)

    async def wait_all(
        self,
        workloads: Sequence[str],
        *,
        goal: str = "finished",
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - as Client.wait
    ) -> Sequence[WorkloadStatus]:
        return await asyncio.to_thread(self.client.wait_all, workloads, goal=goal, timeout=timeout)

    def logs(
        self,
        workload: str,
        *,
        follow: bool = False,
        generation: int | None = None,
        pod: str = "",
        container: str = "",
    ) -> AsyncIterator[LogText]:
        return _in_threads(
            self.client.logs(
                workload, follow=follow, generation=generation, pod=pod, container=container
            )
        )

    async def events(self, workload: str) -> Sequence[TimelineEntry]:
        return await asyncio.to_thread(self.client.events, workload)

    async def why(self, workload: str) -> WhyAnswer:
        return await asyncio.to_thread(self.client.why, workload)

    async def cancel(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        return await asyncio.to_thread(self.client.cancel, workload, reason=reason)

    async def hold(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        return await asyncio.to_thread(self.client.hold, workload, reason=reason)

    async def release(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        return await asyncio.to_thread(self.client.release, workload, reason=reason)

    async def requeue(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        return await asyncio.to_thread(self.client.requeue, workload, reason=reason)

    async def reprioritize(
        self, workload: str, priority: int | str, *, reason: str = ""
    ) -> WorkloadStatus:
        return await asyncio.to_thread(self.client.reprioritize, workload, priority, reason=reason)


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    """The items of an iterator that waits for answers, without blocking the event loop."""
    while (item := await asyncio.to_thread(next, items, _END)) is not _END:
        yield item
