"""A pod whose containers are local processes."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local.node import checkpoint, restart, support
from local.node.api import ApiError
from local.node.criu import CriuError, last_lines
from local.node.environment import ConfigMissingError, FieldUnknownError
from local.node.folders import PodFolder, PodRecord
from local.node.launching import Launcher, Surroundings
from local.node.log_upload import LogUpload
from local.node.logs import open_log
from local.node.pod_run import PodRun
from local.node.pod_volumes import PodVolumes
from local.node.processes import Process, StartFailedError
from local.node.s3_volume import SyncError, UnsupportedVolumeError
from local.node.site import Site
from local.node.state import Container, PodState

log = logging.getLogger(__name__)
RETRY_SECONDS = 1
MESSAGE_BYTES = 4096
LOG_TAIL_BYTES = 2048
START_ERROR = 128  # the exit code that a container runtime gives what it could not execute
NODE_RESTARTED = "ContainerStatusUnknown"
RESTORE_FAILED = "RestoreFailed"


class ProcessPod(PodRun):
    def __init__(
        self, site: Site, pod: dict[str, Any], node: Surroundings, record: PodRecord | None = None
    ) -> None:
        super().__init__(site, pod, record.state if record else PodState.of(pod))
        self.node = node
        self.processes: dict[str, Process] = {}
        self._archive: checkpoint.Archive | None = None
        self._saving = asyncio.Lock()
        self._containers_ended = asyncio.Event()
        self._hooked: set[str] = set()  # containers whose preStop hook has been run
        self._endings: set[asyncio.Task[None]] = set()
        self.folder = PodFolder(record.root if record else site.pods / self.state.uid)
        self.volumes = PodVolumes(self.site, self.pod, self.folder, self.node.allocatable)
        self.launcher = Launcher(self.site, self.pod, self.folder, self.node)
        for course in self.state.init + self.state.containers:
            if course.running:  # it was, before the node program ended and took it along
                message = "The node program ended and its processes with it"
                course.ends(137, NODE_RESTARTED, message)
                self.state.disrupted = message

    async def work(self) -> None:
        if found := support.refusals(self.pod):
            await self._refuse(support.refusal_message(found))
            return
        source = self.pod["metadata"].get("annotations", {}).get(checkpoint.RESTORE_FROM)
        try:
            if source:
                await self._take_over(source)
            elif not await self._prepare():
                return
            self.keep()
            self.volumes.start_uploading(self._warn_of_volumes)
            uploading = asyncio.create_task(self._upload_logs())
            try:
                await self._run_containers()
            finally:
                self._containers_ended.set()
                await uploading
        except checkpoint.StoppedError:
            return  # no StartError, which would count against the checkpoint
        except (checkpoint.RestoreError, CriuError) as error:
            for course in self.state.containers:  # as a container runtime tells it
                course.ends(START_ERROR, "StartError", str(error))
            self.fail(RESTORE_FAILED, str(error))
            await self.site.warn(self.pod, RESTORE_FAILED, str(error))

    async def _upload_logs(self) -> None:
        upload = LogUpload(self.site.buckets, self._work_alive, self.pod, self.folder)
        await upload.run(self.state.containers, self._containers_ended)

    async def _work_alive(self, function: Callable[..., None], *arguments: Any) -> None:
        """Work on files that a dead machine does not do any more."""
        if not self.abandoned:
            await self.site.work(function, *arguments)

    async def _run_containers(self) -> None:
        spec = self.pod["spec"]
        for container in spec.get("initContainers", []) if self._archive is None else []:
            await self._see_through(container)
            course = self._course(container)
            if course.exit_code != 0 or self.stopping.is_set():
                return
        self.state.phase = "Running"
        await asyncio.gather(*(self._see_through(container) for container in spec["containers"]))

    async def clean(self) -> None:
        """The last uploads, without which the pod has failed whatever its code; frees the disk."""
        if lost := await self.volumes.finish(self._warn_of_volumes):
            self.fail("S3VolumeError", lost)
        await self.site.work(self.folder.shrink)

    def abandon(self) -> None:
        self.volumes.hush()
        super().abandon()

    async def _warn_of_volumes(self, message: str) -> None:
        await self.site.warn(self.pod, "S3VolumeError", message)

    async def _refuse(self, message: str) -> None:
        self.fail(support.REASON, message)
        self.state.phase = "Failed"
        await self.site.warn(self.pod, support.REASON, message)

    def keep(self) -> None:
        self._record().save(self.site.pods)

    async def discard(self) -> None:
        """Removes what the pod has on disk, once its processes are gone."""
        await self.ended.wait()
        await self.volumes.silence()
        await self.site.work(self._record().discard, self.site.pods)

    def _record(self) -> PodRecord:
        metadata, node = self.pod["metadata"], self.pod["spec"]["nodeName"]
        return PodRecord(
            metadata["namespace"], metadata["name"], node, self.folder.root, self.state
        )

    async def _prepare(self) -> bool:
        """Folders and volumes; waits for ConfigMaps and Secrets that do not exist yet."""
        self.keep()
        names = [one.name for one in self.state.init + self.state.containers]
        await self.site.work(self.folder.make, names)
        warned = ""
        while True:
            try:
                await self.volumes.fill()
            except UnsupportedVolumeError as error:
                await self._refuse(support.refusal_message([str(error)]))
                return False
            except (SyncError, ConfigMissingError, ApiError) as error:
                if str(error) != warned:
                    warned = str(error)
                    await self.site.warn(self.pod, "FailedMount", warned)
                self._wait("ContainerCreating", warned)
                if await self.pause(RETRY_SECONDS):
                    return False
            else:
                return not self.stopping.is_set()

    def _wait(self, reason: str, message: str) -> None:
        for course in self.state.init + self.state.containers:
            if course.exit_code is None:
                course.waits(reason, message)
        self.report()

    def _course(self, container: dict[str, Any]) -> Container:
        found = self.state.container(container["name"])
        if found is None:
            raise KeyError(container["name"])
        return found

    async def _see_through(self, container: dict[str, Any]) -> None:
        """Runs one container until it has ended and its restart policy is satisfied."""
        course = self._course(container)
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if course.init and policy == "Always":
            policy = "OnFailure"
        endings = 0
        while True:
            if course.exit_code is not None:
                if self.stopping.is_set() or not restart.starts_again(policy, course.exit_code):
                    return
                if pause := restart.pause_seconds(endings):
                    text = f"back-off {pause:.0f}s restarting failed container={course.name}"
                    course.waits("CrashLoopBackOff", text)
                    self.report()
                    if await self.pause(pause):
                        course.waiting = ""
                        return
            began = time.monotonic()
            await self._run_once(container, course)
            if course.exit_code is None:  # stopped before it could start
                return
            lasted = time.monotonic() - began >= restart.RESET_AFTER_SECONDS
            endings = 1 if lasted else endings + 1

    async def _run_once(self, container: dict[str, Any], course: Container) -> None:
        try:
            if self._archive:
                if not await self._has_configuration(container, course):
                    return
                process = await self._restore(self._archive, container, course)
            else:
                started = await self._start(container, course)
                if started is None:
                    return
                process = started
        except StartFailedError as error:
            course.starts()
            course.ends(START_ERROR, "StartError", str(error))
            self.keep()
            return
        self.processes[course.name] = process
        course.starts()
        self.keep()
        self.report()
        if self.stopping.is_set():
            self.end(0 if self.deleted or self.abandoned else self.grace_seconds)
        code = await process.exit_code
        del self.processes[course.name]
        course.ends(code, message=self._termination_message(container, course, code))
        if not self.abandoned:
            self.keep()
        self.report()

    async def _has_configuration(self, container: dict[str, Any], course: Container) -> bool:
        """Waits, as `_start` does, for what the environment names; False if stopped meanwhile."""
        while not self.stopping.is_set():
            try:
                await self.site.call(self.launcher.variables, container)
            except (ConfigMissingError, FieldUnknownError, ValueError, ApiError) as error:
                course.waits("CreateContainerConfigError", str(error))
                self.report()
                await self.pause(RETRY_SECONDS)
            else:
                return True
        return False

    async def _start(self, container: dict[str, Any], course: Container) -> Process | None:
        """None if the pod was stopped while waiting for its configuration."""
        restarts = course.restarts + (course.exit_code is not None)
        while not self.stopping.is_set():
            try:
                launch = await self.site.call(
                    self.launcher.launch, container, restarts, self.volumes.read_only
                )
            except (ConfigMissingError, FieldUnknownError, ValueError, ApiError) as error:
                course.waits("CreateContainerConfigError", str(error))
                self.report()
                await self.pause(RETRY_SECONDS)
                continue
            try:
                return await self.site.processes.start(launch)
            except StartFailedError as error:
                raise StartFailedError(f"{container['command'][0]}: {error}") from error
        return None

    def _termination_message(self, container: dict[str, Any], course: Container, code: int) -> str:
        path = self.folder.termination_message(course.name)
        with contextlib.suppress(OSError):
            if text := path.read_bytes()[:MESSAGE_BYTES].decode(errors="replace"):
                path.write_bytes(b"")  # not removed: it is mounted in the container
                return text
        fallback = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if code and fallback:
            with contextlib.suppress(OSError):
                with open_log(self.folder.log(course.name, course.restarts)) as file:
                    written = file.read()
                return written[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

    # Stopping

    def end(self, grace_seconds: float) -> None:
        for name in self.processes:
            task = asyncio.create_task(self._terminate(name, grace_seconds))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    async def _terminate(self, name: str, grace_seconds: float) -> None:
        """preStop, SIGTERM to the container's first process, SIGKILL to all when time is up."""
        process = self.processes[name]
        until = time.monotonic() + grace_seconds
        if grace_seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pre_stop(name), grace_seconds)
            process.signal(signal.SIGTERM)
            rest = max(0.0, until - time.monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(process.exit_code), rest)
        process.signal(signal.SIGKILL)

    async def _pre_stop(self, name: str) -> None:
        containers = self.pod["spec"].get("initContainers", []) + self.pod["spec"]["containers"]
        container = next(one for one in containers if one["name"] == name)
        if name in self._hooked:
            return
        self._hooked.add(name)
        hook = container.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            await asyncio.sleep(hook["sleep"]["seconds"])
        if "exec" not in hook:
            return
        try:
            launch = await self.site.call(
                self.launcher.hook,
                container,
                hook["exec"]["command"],
                self.processes[name].pid,
            )
            code = await (await self.site.processes.start(launch)).exit_code
        except (StartFailedError, ConfigMissingError, ApiError) as error:
            await self.site.warn(self.pod, "FailedPreStopHook", str(error))
            return
        if code:
            await self.site.warn(self.pod, "FailedPreStopHook", f"preStop exited with {code}")

    # Checkpoint and restore

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.pod["metadata"].get("annotations", {})
        return found

    async def save(
        self, container: str, timeout_seconds: float | None, *, streamed: bool = False
    ) -> Path:
        """Saves a running container, which runs on; returns the archive. Raises CriuError."""
        course, process = self.state.container(container), self.processes.get(container)
        if course is None or process is None:
            raise CriuError(f"container {container!r} is not running")
        if len(self.state.containers) > 1:
            raise CriuError("only pods with one container can be saved on process nodes")
        if self.annotations.get(checkpoint.DRIVER) not in checkpoint.DRIVERS:
            raise CriuError(f"the annotation {checkpoint.DRIVER} does not ask for it")
        (spec,) = self.pod["spec"]["containers"]
        metadata = self.pod["metadata"]
        async with self._saving:
            saved = checkpoint.Saved(
                namespace=metadata["namespace"],
                pod=metadata["name"],
                uid=self.state.uid,
                container=container,
                mounts={
                    f"mount-{number}": str(bind.target)
                    for number, bind in enumerate(
                        self.launcher.describe(spec, self.volumes.read_only).binds
                    )
                },
                restarts=course.restarts,
                criu=self.site.criu.version,
                saved_at=checkpoint.moment(),
            )
            return await checkpoint.save(
                self.site.criu,
                process.pid,
                saved,
                self.folder,
                self.site.checkpoints,
                closes_connections=self.annotations.get(checkpoint.CONNECTIONS)
                != checkpoint.REFUSE,
                timeout_seconds=timeout_seconds,
                streamed=streamed,
            )

    async def _take_over(self, source: str) -> None:
        """Fetches the archive and lays out the files that were saved."""
        if self.site.criu.program is None:
            raise checkpoint.RestoreError(f"cannot restore {source}: {self.site.criu.reason}")
        self.keep()
        unpacked = self.site.state / "restore" / self.state.uid
        digest = self.pod["metadata"]["annotations"].get(checkpoint.RESTORE_DIGEST, "")
        archive = await self.site.work(
            checkpoint.unpack,
            self.site.buckets,
            source,
            unpacked,
            self.stopping.is_set,
            digest,
        )
        course = self.state.container(archive.saved.container)
        if course is None or len(self.state.containers) > 1:
            raise checkpoint.RestoreError(f"{source} holds {archive.saved.container!r} alone")
        course.restarts = archive.saved.restarts
        self._archive = archive
        for one in self.state.init:  # they ran before the checkpoint
            one.starts()
            one.ends(0)
        await self.site.work(self.folder.make, [course.name])
        await self.site.work(archive.lay_out, self.folder)
        try:
            await self.volumes.adopt()
        except (SyncError, ApiError, ConfigMissingError, UnsupportedVolumeError) as error:
            raise checkpoint.RestoreError(str(error)) from error

    async def _restore(
        self, archive: checkpoint.Archive, container: dict[str, Any], course: Container
    ) -> Process:
        if course.exit_code is not None:  # again: its files, too, must be as they were
            await self.site.work(archive.lay_out, self.folder)
            course.restarts -= 1  # its log goes on where the saved one ended
        layers = self.folder.layers(course.name)
        sources = {
            str(bind.target): bind.source
            for bind in self.launcher.describe(container, self.volumes.read_only).binds
        }
        if missing := set(archive.saved.mounts.values()) - set(sources):
            raise checkpoint.RestoreError(f"nothing is mounted at {', '.join(sorted(missing))}")
        mounts = {name: sources[target] for name, target in archive.saved.mounts.items()}
        try:
            return await self.site.processes.restore(
                self.site.criu.restore_command(
                    archive.images, archive.pidfile, layers.folder / "merged", mounts
                ),
                pidfile=archive.pidfile,
                log=archive.folder / "restore.out",
                root=self.folder.root,
                layers=layers,
            )
        except StartFailedError as error:
            details = last_lines(archive.images / "restore.log")
            raise CriuError(f"{error}: {details}") from error
