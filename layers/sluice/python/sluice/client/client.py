"""The client: one method for each request, typed results, exceptions with exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from sluice.client.connection import Connection
from sluice.client.results import (
    LogText,
    SubmittedWorkload,
    TimelineEntry,
    WhyAnswer,
    WorkloadStatus,
)
from sluice.client.selection import find
from sluice.client.watching import GOALS, WorkloadWatcher, no_display

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sluice.client.documents import Source

JobDocument = Mapping[str, Any]
LIST_LIMIT = 10_000


class Client:
    """Requests to one deployment of Sluice, with the caller's own AWS credentials.

    Workloads are named by id, unique prefix of an id, or unique name. Every method raises
    SluiceClientError: see `sluice.client.errors`.
    """

    def __init__(
        self,
        *,
        profile: str | None = None,
        api_url: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.connection = connection or Connection(profile=profile, api_url=api_url)
        self._sent: dict[str, str] = {}

    def submit(
        self,
        document: JobDocument | str | PathLike[str],
        *,
        namespace: str | None = None,
        idempotency_key: str | None = None,
        transport: str = "sqs",
    ) -> SubmittedWorkload:
        """Submits one document: a Workload, Job or JobSet, or the path of a file with one.

        The same key and document is the same workload. Raises RequestRefusedError for a document
        that cannot be sent, IdempotencyKeyReusedError for a key of another document. The record
        shows later whether the document was accepted.
        """
        (only,) = self.submit_all(
            [document],
            namespace=namespace,
            idempotency_key=idempotency_key,
            transport=transport,
        )
        return only

    def submit_all(
        self,
        documents: Iterable[JobDocument | str | PathLike[str]],
        *,
        namespace: str | None = None,
        idempotency_key: str | None = None,
        transport: str = "sqs",
    ) -> Sequence[SubmittedWorkload]:
        """Submits documents in batches; a file may hold several."""
        from sluice.client.errors import UsageError  # noqa: PLC0415 - only submissions need it
        from sluice.client.submitting import digests, prepare, send  # noqa: PLC0415 - as above

        sources = [source for document in documents for source in _sources(document)]
        if idempotency_key and len(sources) != 1:
            raise UsageError(f"an idempotency key is for one document, not {len(sources)}")
        given = None if namespace is None else (lambda: namespace)
        submissions = [
            prepare(self.connection, source, key=idempotency_key, namespace=given)
            for source in sources
        ]
        before = send(self.connection, submissions, transport)
        sent = digests(submissions)
        self._sent |= sent
        return [
            SubmittedWorkload(
                item.id, item.namespace, item.name, before.get(item.id), sent[item.id]
            )
            for item in submissions
        ]

    def get(self, workload: str) -> WorkloadStatus:
        """One workload. Raises ObjectNotFoundError, or AmbiguousNameError."""
        return WorkloadStatus.from_api(find(self.connection.api, workload))

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
    ) -> Iterator[WorkloadStatus]:
        """Workloads, newest first, page by page.

        Without `since`: the unfinished ones and those of the last 24 hours.
        """
        filters = {"queue": queue, "state": state, "name": name, "user": user}
        filters["selector"] = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        if since is not None:
            filters["since"] = str(int(since.timestamp() * 1_000))
        for document in self.connection.api.workloads(limit=limit, **filters):
            yield WorkloadStatus.from_api(document)

    def wait(
        self,
        workload: str,
        *,
        goal: str = "finished",
        timeout: float | timedelta | None = None,
    ) -> WorkloadStatus:
        """Waits until the workload is admitted, running, checkpointed or finished.

        Returns its state at the end or after the timeout (seconds); see `ended`, `outcome` and
        `require_success`. Raises WorkloadNotFoundError.
        """
        return self.wait_all([workload], goal=goal, timeout=timeout)[0]

    def wait_all(
        self,
        workloads: Sequence[str],
        *,
        goal: str = "finished",
        timeout: float | timedelta | None = None,
    ) -> Sequence[WorkloadStatus]:
        """Waits for several workloads at once; states in the order of the arguments."""
        from sluice.client.errors import UsageError, WorkloadNotFoundError  # noqa: PLC0415 - as above

        if goal not in GOALS:
            raise UsageError(f"{goal!r} is no goal; there are {', '.join(GOALS)}")
        seconds = timeout if timeout is None or isinstance(timeout, int | float) else None
        if seconds is None and timeout is not None:
            seconds = timeout.total_seconds()  # type: ignore[union-attr]  # a timedelta
        fresh = all(workload in self._sent for workload in workloads)
        ids = [
            workload
            if workload in self._sent
            else str(find(self.connection.api, workload, missing=WorkloadNotFoundError)["id"])
            for workload in workloads
        ]
        sent = {identity: self._sent[identity] for identity in ids if identity in self._sent}
        watcher = WorkloadWatcher(self.connection, ids, goal, seconds, fresh, sent)
        return [WorkloadStatus.from_api(document) for document in watcher(no_display)]

    def logs(
        self,
        workload: str,
        *,
        follow: bool = False,
        generation: int | None = None,
        pod: str = "",
        container: str = "",
    ) -> Iterator[LogText]:
        """Logs from running pods or from the archive; with `follow` until the workload ends."""
        from sluice.client.errors import WorkloadNotFoundError  # noqa: PLC0415 - as above
        from sluice.client.log_reader import LogReader  # noqa: PLC0415 - as above

        found = find(self.connection.api, workload, missing=WorkloadNotFoundError)
        reader = LogReader(self.connection, found["id"], generation, pod, container)
        for source, text in reader.follow() if follow else reader.new_text():
            yield LogText(source, text)

    def events(self, workload: str) -> Sequence[TimelineEntry]:
        """The timeline of a workload, oldest entry first."""
        found = find(self.connection.api, workload)
        items = self.connection.api.get("workloads", found["id"], "events")["items"]
        return [TimelineEntry.from_api(item) for item in items]

    def why(self, workload: str) -> WhyAnswer:
        """Why a workload does not run: quota, its holders, the queue ahead, what would help."""
        found = find(self.connection.api, workload)
        return WhyAnswer.from_api(self.connection.api.get("workloads", found["id"], "why"))

    def cancel(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        """Cancels a workload: a pending one at once, a running one is stopped first."""
        return self._steer("cancel", workload, reason=reason)

    def hold(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        """Holds a pending workload: it is not admitted until `release`."""
        return self._steer("hold", workload, reason=reason)

    def release(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        """Lets a held workload be admitted again."""
        return self._steer("release", workload, reason=reason)

    def requeue(self, workload: str, *, reason: str = "") -> WorkloadStatus:
        """Stops a workload and puts it back into its queue."""
        return self._steer("requeue", workload, reason=reason)

    def reprioritize(
        self, workload: str, priority: int | str, *, reason: str = ""
    ) -> WorkloadStatus:
        """Changes the priority of a pending workload: a number, or a WorkloadPriorityClass."""
        return self._steer("reprioritize", workload, reason=reason, priority=priority)

    def _steer(self, verb: str, workload: str, **body: Any) -> WorkloadStatus:
        found = find(self.connection.api, workload)
        answer = self.connection.api.post("workloads", found["id"], verb, body=body)
        return WorkloadStatus.from_api(answer)


def _sources(document: JobDocument | str | PathLike[str]) -> list[Source]:
    from sluice.client.documents import Source, read  # noqa: PLC0415 - as above

    if isinstance(document, Mapping):
        return [Source("the document", dict(document))]
    return read([fspath(document)])
