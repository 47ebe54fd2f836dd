"""Carry word between pods and Cedana: what is to be saved, and what was restored.

No agent answers orders for Cedana, so `act` does whenever it looks at such a workload. A request is
written on the pod before it is sent, and the write holds only if nobody else has written. So two
reconcilers may look at the same pods, and one may die at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sluice.cedana import pods as cedana
from sluice.cedana.pods import ActionProgress, Restoring, Saving
from sluice.cedana.service import CedanaApis
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import Intent, IntentKind, Workload
from sluice.core.migrations.pod_annotations import DONE, ORDER, annotations_of
from sluice.core.migrations.service_pods import awaits_service
from sluice.core.values.reasons import Reason
from sluice.errors import CheckpointServiceRefused
from sluice.ports import Clock, Cluster, Document, Timeline, Workloads
from sluice.usecases.migrations import pod_writer
from sluice.usecases.migrations.placeholders import remove_placeholders
from sluice.usecases.migrations.stop_run import find

AT_ONCE_SECONDS = 1  # never 0: Kubernetes would forget the pod before its node has ended it


@dataclass(frozen=True, kw_only=True)
class CedanaReconciler:
    """Raises CheckpointServiceError or ClusterError; the next look goes on from there."""

    workloads: Workloads
    timeline: Timeline
    clock: Clock
    apis: CedanaApis

    def __call__(self, name: str, cluster: Cluster, workload: Workload) -> None:
        pods = self.pods(cluster, workload)
        for pod in pods:
            if awaits_service(pod):
                self.save(name, cluster, pod)
        self.restore(name, cluster, workload, pods)

    def pods(self, cluster: Cluster, workload: Workload) -> list[Document]:
        """Those of all its generations."""
        pods, _ = cluster.list("Pod", selector=f"{job_status.WORKLOAD_LABEL}={workload.id}")
        return pods

    def save(self, name: str, cluster: Cluster, pod: Document) -> None:
        """Ask once for each order, as far as possible: a second checkpoint would do no harm."""
        service, uid = self.apis.of(name), pod["metadata"]["uid"]
        asked, known = cedana.saving(pod), ""
        if asked is None:
            asked = Saving(annotations_of(pod)[ORDER], self.clock.now(), service.newest(uid))
            marked = pod_writer.patch(cluster, pod, cedana.marked(pod, cedana.SAVING, asked))
            if marked is None:
                return
            pod = marked
        elif not asked.action:
            known = service.newest(uid)
        if not asked.action:
            ours = known if known != asked.before else ""
            asked = replace(asked, action=ours or service.checkpoint(uid))
            marked = pod_writer.patch(cluster, pod, cedana.marked(pod, cedana.SAVING, asked))
            if marked is None:
                return
        seen = service.look(asked.action)
        if answer := cedana.answered(asked, name, seen, self.clock.now()):
            pod_writer.annotate(cluster, pod, {DONE: answer})

    def restore(
        self, name: str, cluster: Cluster, workload: Workload, pods: Sequence[Document]
    ) -> None:
        """One request of a generation at a time, and every pod that came of it is counted."""
        stand_ins = [pod for pod in pods if job_status.stands_in(pod)]
        asking = [pod for pod in stand_ins if cedana.restoring(pod).source]
        # Read after the pods, so that no stand-in is newer than the record.
        current = self.workloads.get(workload.id)
        if current is None:
            return
        self.end_unadopted(cluster, current, pods)
        for stand_in in asking:
            self.settle(name, cluster, current, stand_in, pods)
        if asking:
            return
        for stray in cedana.restored(pods, current.generation):
            pod_writer.delete(cluster, stray, grace_seconds=AT_ONCE_SECONDS)
        wanted = [pod for pod in stand_ins if cedana.is_current(current, pod)]
        for stand_in in stand_ins:
            if stand_in not in wanted[:1]:
                pod_writer.patch(cluster, stand_in, cedana.released(stand_in))
        for stand_in in wanted[:1]:
            self.ask(name, cluster, current, stand_in)

    def end_unadopted(self, cluster: Cluster, workload: Workload, pods: Sequence[Document]) -> None:
        """What was taken over for a Job that ended meanwhile, and so never takes it in."""
        left = [
            pod
            for pod in pods
            if cedana.generation(pod) == workload.generation
            and job_status.bare(pod)
            and job_status.running_pod(pod)
        ]
        job = find(cluster, workload) if left else None
        if job is None or job_status.outcome(job) or job["metadata"].get("deletionTimestamp"):
            for pod in left:
                pod_writer.delete(cluster, pod, grace_seconds=AT_ONCE_SECONDS)

    def ask(self, name: str, cluster: Cluster, workload: Workload, stand_in: Document) -> None:
        service, source = self.apis.of(name), workload.restore_from
        asked = Restoring(source, self.clock.now())
        marked = pod_writer.patch(
            cluster, stand_in, cedana.marked(stand_in, cedana.RESTORING, asked)
        )
        if marked is None:
            return
        remove_placeholders(cluster, workload)
        try:
            action = service.restore(cedana.place(source)[1])
        except CheckpointServiceRefused as error:  # nothing was begun, so nothing was asked
            pod_writer.patch(cluster, marked, cedana.marked(marked, cedana.RESTORING, Restoring()))
            if not error.lasting:
                raise
            self.give_up(workload, str(error))
            return
        self.note_action(cluster, workload, marked, replace(asked, action=action))
        told = f"of {source}, by action {action}"
        self.timeline.append([Happening(workload, asked.at, "RestoreOrdered", told)])

    def note_action(
        self, cluster: Cluster, workload: Workload, stand_in: Document, asked: Restoring
    ) -> None:
        """Whoever else has touched the pod meanwhile, unless it is settled: nobody asks again."""
        uid, before = stand_in["metadata"]["uid"], cedana.restoring(stand_in)
        latest: Document | None = stand_in
        while latest is not None and cedana.restoring(latest) == before:
            if pod_writer.patch(cluster, latest, cedana.marked(latest, cedana.RESTORING, asked)):
                return
            pods = self.pods(cluster, workload)
            latest = next((pod for pod in pods if pod["metadata"]["uid"] == uid), None)

    def give_up(self, workload: Workload, why: str) -> None:
        """As with a node that cannot start from a checkpoint (core.migrations.restoring)."""
        intent = Intent(IntentKind.MIGRATE, Reason.CHECKPOINT_UNUSABLE, why)
        self.workloads.apply([lifecycle.reclaim(workload, intent)])

    def settle(
        self,
        name: str,
        cluster: Cluster,
        workload: Workload,
        stand_in: Document,
        pods: Sequence[Document],
    ) -> None:
        """What became of a request; nothing happens while that is not known."""
        asked = cedana.restoring(stand_in)
        found = cedana.restored(pods, cedana.generation(stand_in))
        if not asked.found and not found:
            why = self.failure(name, stand_in, asked)
            if not why:
                self.tell_of_waiting(workload, stand_in, asked)
                return
            found = cedana.restored(self.pods(cluster, workload), cedana.generation(stand_in))
            if not found:  # also after Cedana's word
                if cedana.is_current(workload, stand_in):
                    self.give_up(workload, why)
                pod_writer.patch(cluster, stand_in, cedana.released(stand_in))
                return
        if not asked.found:
            asked = replace(asked, found=found[0]["metadata"]["uid"])
            marked = pod_writer.patch(
                cluster, stand_in, cedana.marked(stand_in, cedana.RESTORING, asked)
            )
            if marked is None:
                return
            stand_in = marked
        wanted = cedana.is_current(workload, stand_in)
        for pod in found:
            ours = pod["metadata"]["uid"] == asked.found
            if ours and pod_writer.patch(cluster, pod, cedana.taken_over(pod, stand_in)) is None:
                continue  # it has vanished
            if not (ours and wanted):
                pod_writer.delete(cluster, pod, grace_seconds=AT_ONCE_SECONDS)
        pod_writer.patch(cluster, stand_in, cedana.released(stand_in))

    def failure(self, name: str, stand_in: Document, asked: Restoring) -> str:
        """Why no pod will come of it any more; empty while one may."""
        if annotations_of(stand_in).get(cedana.VOID):
            return "an administrator says that nothing was restored"
        if not asked.action:
            return ""
        seen = self.apis.of(name).look(asked.action)
        return (seen.details or "no details") if seen.progress is ActionProgress.FAILED else ""

    def tell_of_waiting(self, workload: Workload, stand_in: Document, asked: Restoring) -> None:
        told = cedana.waiting(stand_in, asked)
        late = self.clock.now() - asked.at > cedana.TELL_MS
        if late and workload.reason.message != told:
            self.workloads.apply([lifecycle.hinder(workload, Reason.RESTORING_CHECKPOINT, told)])
