"""Copies the logs of pods to the archive while the pods still exist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State, Workload
from sluice.errors import ClusterError
from sluice.ports import Clock, Cluster, Document, LogArchive
from sluice.usecases.running.problems import Problems

LOG_BYTES = 10_000_000
RECENT_MS = 300_000
REMEMBERED = 20_000
NOT_FOUND = 404


@dataclass
class ArchiveLogs:
    """Copies in threads of its own; remembers what it has copied, so that nothing is read twice."""

    archive: LogArchive
    clock: Clock
    problems: Problems
    pool: ThreadPoolExecutor
    archived: dict[tuple[str, int], None] = field(default_factory=dict)
    """Generations whose logs are copied, oldest first."""
    pending: dict[tuple[str, int], int] = field(default_factory=dict)
    """Generations whose logs are still to be copied, and when they ended (epoch ms)."""
    last_copies: dict[tuple[str, bool], Future[None]] = field(default_factory=dict)
    """(UID of a deleted pod, whether it had ended by then) → the copy of its logs."""

    def complete_until(self) -> int:
        """All logs of Jobs that ended before this time (epoch ms) are archived."""
        return min(list(self.pending.values()), default=self.clock.now())

    def abandon(self) -> None:
        """Leaves the pending copies to the next observer, which `complete_until` tells of them."""
        self.pending.clear()

    def expect(self, workload: Workload, ended_at: int) -> None:
        """Notes that the logs of this generation are to be copied, unless they have been."""
        key = workload.id, workload.generation
        if key not in self.archived:
            self.pending.setdefault(key, ended_at)

    def start(self, cluster: Cluster, workload: Workload, state: ClusterState) -> None:
        self.pool.submit(self.copy, cluster, workload, state)

    def keep_exit_codes(self, workload: Workload, state: ClusterState) -> None:
        """Of more pods than a record names, beside the logs, as pod `exit-codes`."""
        codes = job_status.exit_codes(state.pods_of(workload.id, workload.generation))
        text = json.dumps(codes, default=int, sort_keys=True).encode()
        where = workload.id, workload.generation, "exit-codes", "all"
        self.pool.submit(self._put, where, text)

    def _put(self, where: tuple[str, int, str, str], text: bytes) -> None:
        try:
            self.archive.put(*where, text)
        except Exception as error:  # noqa: BLE001 - nobody reads the result of the thread
            self.problems.report(error)

    def start_recent(
        self, cluster: Cluster, state: ClusterState, records: Iterable[Workload], since: int
    ) -> None:
        """Copies the logs of Jobs that ended after `since`, and within the last minutes."""
        since = max(since, self.clock.now() - RECENT_MS)
        for workload in records:
            if workload.state is State.FINISHED and workload.finished_at >= since:
                self.expect(workload, workload.finished_at)
                self.start(cluster, workload, state)

    def copy(self, cluster: Cluster, workload: Workload, state: ClusterState) -> None:
        """Copies what the pods of this generation printed; only the first call does."""
        key = workload.id, workload.generation
        if key in self.archived or key not in self.pending:
            return
        self.archived[key] = None
        while len(self.archived) > REMEMBERED:
            del self.archived[next(iter(self.archived))]
        complete = False
        try:
            pods = state.pods_of(workload.id, workload.generation)
            copied = [self._copy_pod(cluster, key, pod) for pod in pods]
            complete = all(copied)
        except Exception as error:  # noqa: BLE001 - nobody reads the result of the thread
            self.problems.report(error)
        if complete:
            self.pending.pop(key, None)
        else:
            self.archived.pop(key, None)  # `start_remaining` tries again

    def _copy_pod(self, cluster: Cluster, key: tuple[str, int], pod: Document) -> bool:
        """Whether nothing more can be read; False after an error that may pass.

        A log that cannot be read is replaced by a note, unless an earlier observer has archived
        it: two observers may copy the same logs, and the pod may be deleted in between.
        """
        complete = True
        for container in pod["spec"]["containers"]:
            where = (*key, pod["metadata"]["name"], container["name"])
            try:
                log = read_log(cluster, pod, container["name"])
            except ClusterError as error:
                self.problems.report(error)
                complete = complete and error.status == NOT_FOUND
                note = f"(the log could not be read: {error})\n".encode()
                self.archive.put_if_absent(*where, note)
            else:
                if log:
                    self.archive.put(*where, log)
        return complete

    def start_remaining(
        self,
        cluster: Cluster,
        state: ClusterState,
        read_records: Callable[[Iterable[str]], Iterable[Workload]],
    ) -> None:
        """Tries again the logs that could not be read, until their Jobs have ended long ago."""
        now = self.clock.now()
        remaining = [key for key in list(self.pending) if key not in self.archived]
        for key in remaining:
            if self.pending.get(key, now) < now - RECENT_MS:
                self.pending.pop(key, None)
        for workload in read_records(dict.fromkeys(i for i, _ in remaining)):
            if (workload.id, workload.generation) in remaining:
                self.start(cluster, workload, state)

    def start_last(self, cluster: Cluster, pods: Sequence[Document]) -> None:
        """Copies the logs of pods that are being deleted: once at first, and once they ended.

        Such pods are removed right after their end, so the second copy may come too late; the
        first one stays then.
        """
        for pod in pods:
            metadata, owner = pod["metadata"], job_status.owner(pod)
            if owner is None or not metadata.get("deletionTimestamp"):
                continue
            uid, ended = metadata["uid"], not job_status.running_pod(pod)
            before = self.last_copies.get((uid, False))
            if (uid, ended) in self.last_copies or (ended and before is None):
                continue  # copied already, or it ended before it was deleted
            copy = self.pool.submit(self._copy_last, cluster, owner, pod, before)
            self.last_copies[uid, ended] = copy
            while len(self.last_copies) > REMEMBERED:
                del self.last_copies[next(iter(self.last_copies))]

    def _copy_last(
        self,
        cluster: Cluster,
        owner: tuple[str, int],
        pod: Document,
        before: Future[None] | None,
    ) -> None:
        """Waits for the copy `before`, which must not overwrite this one."""
        if before is not None:
            before.result()
        for container in pod["spec"]["containers"]:
            try:
                log = read_log(cluster, pod, container["name"])
                if log:
                    self.archive.put(*owner, pod["metadata"]["name"], container["name"], log)
            except ClusterError:
                continue  # the pod is gone
            except Exception as error:  # noqa: BLE001 - nobody reads the result of the thread
                self.problems.report(error)


def read_log(cluster: Cluster, pod: Document, container: str) -> bytes:
    metadata = pod["metadata"]
    return cluster.logs(metadata["namespace"], metadata["name"], container, limit_bytes=LOG_BYTES)
