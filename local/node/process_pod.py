"""A pod whose containers are local processes."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.node import environment, restart, support, volumes
from local.node.api import ApiError
from local.node.folders import PodFolder, PodRecord
from local.node.paths import rewrite, volume_variable
from local.node.pod_run import PodRun
from local.node.processes import Launch, Process, StartFailedError
from local.node.s3_volume import S3Folder, S3Mount, SyncError, UnsupportedVolumeError, mount_of
from local.node.site import Site
from local.node.state import Container, PodState

log = logging.getLogger(__name__)
RETRY_SECONDS = 2
UPLOAD_SECONDS = 0.5
MESSAGE_BYTES = 4096
LOG_TAIL_BYTES = 2048
START_ERROR = 128  # the exit code that a container runtime gives what it could not execute
NODE_RESTARTED = "ContainerStatusUnknown"
PYTHONS = ("python", "python3")


@dataclass(frozen=True)
class Surroundings:
    """What a pod learns from its node."""

    allocatable: Mapping[str, str]
    metadata_endpoint: str


class ProcessPod(PodRun):
    def __init__(
        self, site: Site, pod: dict[str, Any], node: Surroundings, record: PodRecord | None = None
    ) -> None:
        super().__init__(site, pod, record.state if record else PodState.of(pod))
        self.node = node
        self.folder = PodFolder(record.root if record else site.pods / self.state.uid)
        self.processes: dict[str, Process] = {}
        self.buckets: list[S3Folder] = []
        self._quiet = asyncio.Event()  # no container runs any more
        self._uploader: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()
        for course in self.state.init + self.state.containers:
            if course.running:  # it was, before the node program ended and took it along
                message = "The node program ended and its processes with it"
                course.ends(137, NODE_RESTARTED, message)

    async def work(self) -> None:
        if found := support.refusals(self.pod):
            await self._refuse(support.refusal_message(found))
            return
        self.keep()
        if not await self._prepare():
            return
        spec = self.pod["spec"]
        for container in spec.get("initContainers", []):
            await self._see_through(container)
            course = self._course(container)
            if course.exit_code != 0 or self.stopping.is_set():
                return
        self.state.phase = "Running"
        await asyncio.gather(*(self._see_through(container) for container in spec["containers"]))

    async def clean(self) -> None:
        """The last uploads; if a result does not arrive the pod has failed, whatever its code."""
        if self._uploader:
            self._quiet.set()
            await self._uploader
        for bucket in self.buckets:
            try:
                await self.site.work(bucket.finish)
            except SyncError as error:
                self.fail("S3VolumeError", str(error))
                await self.site.warn(self.pod, "S3VolumeError", str(error))

    async def _upload(self) -> None:
        """Uploads closed files while the pod runs; a failure is retried, at last by `clean`."""
        warned = ""
        while not self._quiet.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), UPLOAD_SECONDS)
                return
            for bucket in self.buckets:
                try:
                    await self.site.work(bucket.upload_closed)
                except SyncError as error:
                    if warned != str(error):
                        warned = str(error)
                        await self.site.warn(self.pod, "S3VolumeError", warned)

    async def _refuse(self, message: str) -> None:
        self.fail(support.REASON, message)
        self.state.phase = "Failed"
        await self.site.warn(self.pod, support.REASON, message)

    def keep(self) -> None:
        self._record().save(self.site.pods)

    async def discard(self) -> None:
        """Removes what the pod has on disk, once its processes are gone."""
        await self.ended.wait()
        await self.site.work(self._record().discard, self.site.pods)

    def _record(self) -> PodRecord:
        metadata, node = self.pod["metadata"], self.pod["spec"]["nodeName"]
        return PodRecord(
            metadata["namespace"], metadata["name"], node, self.folder.root, self.state
        )

    async def _prepare(self) -> bool:
        """Folders and volumes; waits for ConfigMaps and Secrets that do not exist yet."""
        names = [one.name for one in self.state.init + self.state.containers]
        await self.site.work(self.folder.make, names)
        warned = ""
        while True:
            try:
                for volume in self.pod["spec"].get("volumes", []):
                    await self._fill(volume)
            except UnsupportedVolumeError as error:
                await self._refuse(support.refusal_message([str(error)]))
                return False
            except (SyncError, environment.ConfigMissingError, ApiError) as error:
                if str(error) != warned:
                    warned = str(error)
                    await self.site.warn(self.pod, "FailedMount", warned)
                self._wait("ContainerCreating", warned)
                if await self.pause(RETRY_SECONDS):
                    return False
            else:
                if self.buckets:
                    self._uploader = asyncio.create_task(self._upload())
                return not self.stopping.is_set()

    async def _fill(self, volume: dict[str, Any]) -> None:
        folder = self.folder.volume(volume["name"])
        if "persistentVolumeClaim" in volume:
            await self._mount_bucket(volume, folder)
            return
        fill = volumes.fill
        await self.site.work(fill, self.site.api, self.pod, volume, folder, self.node.allocatable)

    async def _mount_bucket(self, volume: dict[str, Any], folder: Path) -> None:
        if any(bucket.folder == folder for bucket in self.buckets):
            return  # in an earlier attempt, before another volume had to wait
        mount = await self.site.call(self._s3_mount, volume)
        client = await self.site.work(self.site.buckets.client, mount.region)
        bucket = S3Folder(client, mount, folder, self.folder.root / "staging")
        await self.site.work(bucket.download)
        self.buckets.append(bucket)

    def _s3_mount(self, volume: dict[str, Any]) -> S3Mount:
        claim_name = volume["persistentVolumeClaim"]["claimName"]
        namespace = self.pod["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim_name}"
        claim = self.site.api.get(path)
        if claim.get("status", {}).get("phase") != "Bound":
            raise environment.ConfigMissingError(f"claim {claim_name!r} is not bound yet")
        name = claim["spec"]["volumeName"]
        mounts = [
            mount
            for kind in ("initContainers", "containers")
            for container in self.pod["spec"].get(kind, [])
            for mount in container.get("volumeMounts", [])
            if mount["name"] == volume["name"]
        ]
        read_only = volume["persistentVolumeClaim"].get("readOnly", False) or (
            bool(mounts) and all(mount.get("readOnly", False) for mount in mounts)
        )
        found = self.site.api.get(f"/api/v1/persistentvolumes/{name}")
        return mount_of(found, read_only=read_only)

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
        pause = ran = 0.0
        while True:
            if course.exit_code is not None:
                if self.stopping.is_set() or not restart.starts_again(policy, course.exit_code):
                    return
                if course.reason != NODE_RESTARTED:
                    pause = restart.pause_seconds(pause, ran)
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
            ran = time.monotonic() - began

    async def _run_once(self, container: dict[str, Any], course: Container) -> None:
        launch = await self._launch(container, course)
        if launch is None:
            return
        try:
            process = await self.site.processes.start(launch)
        except StartFailedError as error:
            course.starts()
            course.ends(START_ERROR, "StartError", f"{launch.argv[0]}: {error}")
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

    async def _launch(self, container: dict[str, Any], course: Container) -> Launch | None:
        """The resolved command; None if the pod was stopped while waiting for its configuration."""
        while not self.stopping.is_set():
            try:
                variables = await self._variables(container)
            except (
                environment.ConfigMissingError,
                environment.FieldUnknownError,
                ValueError,
            ) as error:
                course.waits("CreateContainerConfigError", str(error))
                self.report()
                await self.pause(RETRY_SECONDS)
            else:
                break
        else:
            return None
        mounts = self._mounts(container)
        words = [*container["command"], *container.get("args", [])]
        argv = [rewrite(environment.expand(word, variables), mounts) for word in words]
        argv[0] = self._interpreter(argv[0])
        restarts = course.restarts + (course.exit_code is not None)
        cwd = await self.site.work(self._working_folder, container, mounts)
        return Launch(
            argv=argv,
            env=self._environment(container, variables, mounts),
            cwd=cwd,
            log=self.folder.log(course.name, restarts),
            root=self.folder.root,
        )

    async def _variables(self, container: dict[str, Any]) -> dict[str, str]:
        needed = environment.sources_of(container)
        sources: environment.Sources = {}
        if needed:
            namespace = self.pod["metadata"]["namespace"]
            fetch = volumes.fetch_sources
            sources = await self.site.call(fetch, self.site.api, namespace, needed)
        allocatable = self.node.allocatable
        return environment.container_environment(self.pod, container, sources, allocatable)

    def _mounts(self, container: dict[str, Any]) -> dict[str, Path]:
        mounts = {
            mount["mountPath"]: self.folder.volume(mount["name"]) / mount.get("subPath", "")
            for mount in container.get("volumeMounts", [])
        }
        message = container.get("terminationMessagePath", "/dev/termination-log")
        return mounts | {message: self.folder.termination_message(container["name"])}

    def _interpreter(self, program: str) -> str:
        """An image's own /usr/local/bin/python becomes the one that the node has."""
        name = Path(program).name
        mapped = name in PYTHONS and not Path(program).exists()
        return str(self.site.state / "bin" / name) if mapped else program

    def _environment(
        self, container: dict[str, Any], variables: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> dict[str, str]:
        asked = {name: rewrite(value, mounts) for name, value in variables.items()}
        folders = {
            volume_variable(mount["name"]): str(mounts[mount["mountPath"]])
            for mount in container.get("volumeMounts", [])
        }
        given = {
            "PATH": self.site.search_path,
            "HOME": str(self.folder.work(container["name"])),
            "HOSTNAME": self.pod["metadata"]["name"],
            "TMPDIR": str(self.folder.temporary),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.node.metadata_endpoint,
        }
        return given | folders | asked | {"SLUICE_POD_ROOT": str(self.folder.root)}

    def _working_folder(self, container: dict[str, Any], mounts: Mapping[str, Path]) -> Path:
        """The named one if it is a mount or exists on this machine; else a folder of the pod."""
        for folder in mounts.values():
            if folder.is_relative_to(self.folder.root / "volumes"):
                folder.mkdir(parents=True, exist_ok=True)  # a subPath may not exist yet
        named = container.get("workingDir")
        wanted = Path(rewrite(named, mounts)) if named else self.folder.work(container["name"])
        if not wanted.is_dir() and not wanted.is_relative_to(self.folder.root):
            wanted = self.folder.root / "rootfs" / wanted.relative_to(wanted.anchor)
        wanted.mkdir(parents=True, exist_ok=True)
        return wanted

    def _termination_message(self, container: dict[str, Any], course: Container, code: int) -> str:
        path = self.folder.termination_message(course.name)
        with contextlib.suppress(OSError):
            if text := path.read_bytes()[:MESSAGE_BYTES].decode(errors="replace"):
                path.unlink()
                return text
        fallback = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if code and fallback:
            with contextlib.suppress(OSError):
                written = self.folder.log(course.name, course.restarts).read_bytes()
                return written[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

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
        hook = container.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            await asyncio.sleep(hook["sleep"]["seconds"])
        if "exec" not in hook:
            return
        try:
            variables = await self._variables(container)
            mounts = self._mounts(container)
            launch = Launch(
                argv=[rewrite(word, mounts) for word in hook["exec"]["command"]],
                env=self._environment(container, variables, mounts),
                cwd=self._working_folder(container, mounts),
                log=self.folder.root / "logs" / f"{name}.pre-stop.log",
                root=self.folder.root,
            )
            code = await (await self.site.processes.start(launch)).exit_code
        except (StartFailedError, environment.ConfigMissingError, ApiError) as error:
            await self.site.warn(self.pod, "FailedPreStopHook", str(error))
            return
        if code:
            await self.site.warn(self.pod, "FailedPreStopHook", f"preStop exited with {code}")
