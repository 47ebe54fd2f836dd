"""From a container's manifest to a process: command, environment, working folder, log."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.node import environment, volumes
from local.node.containers import HOME, INIT, LOGS, PYTHONS, Bind, Container
from local.node.folders import PodFolder
from local.node.paths import rewrite, volume_variable
from local.node.processes import Launch
from local.node.site import SYSTEM_PATH, Site

READ_ONLY_VOLUMES = ("configMap", "secret", "downwardAPI")
TERMINATION_LOG = "/dev/termination-log"
HOSTS = Path("/etc/hosts")
HOSTNAME_LENGTH = 63  # as the kubelet truncates it


@dataclass(frozen=True)
class Surroundings:
    """What a pod learns from its node."""

    allocatable: Mapping[str, str]
    metadata_endpoint: str


@dataclass(frozen=True)
class Launcher:
    """Prepares the processes of one pod. Its methods block: they read the API and the disk."""

    site: Site
    pod: dict[str, Any]
    folder: PodFolder
    node: Surroundings

    def launch(
        self, container: dict[str, Any], restarts: int, read_only: Collection[str]
    ) -> Launch:
        """The container's own process, below an init where containers are isolated.

        `read_only` names the volumes that cannot be written. Raises ConfigMissingError,
        FieldUnknownError, ValueError or ApiError.
        """
        if not self.site.isolation.available:
            return self._launch_on_machine(container, restarts)
        variables, name = self.variables(container), container["name"]
        words = [*container["command"], *container.get("args", [])]
        self.site.isolation.start_afresh(self.folder.layers(name))
        self.folder.termination_message(name).write_bytes(b"")
        return Launch(
            argv=[
                *(sys.executable, "-I", "-S", str(INIT)),
                *(environment.expand(word, variables) for word in words),
            ],
            env=self._environment(container, variables, {}),
            cwd=Path(container.get("workingDir") or HOME),
            log=LOGS / self.folder.log(name, restarts).name,
            root=self.folder.root,
            container=self.describe(container, read_only),
        )

    def describe(self, container: dict[str, Any], read_only: Collection[str]) -> Container:
        """The container as the keeper starts it, and as CRIU finds its mounts again."""
        name = container["name"]
        message = self.folder.termination_message(name)
        message.touch()
        log = Path(container.get("terminationMessagePath", TERMINATION_LOG))
        kinds = {volume["name"]: set(volume) for volume in self.pod["spec"].get("volumes", [])}
        mounts = [
            Bind(
                source=self._mounted(mount),
                target=Path(mount["mountPath"]),
                read_only=mount.get("readOnly", False)
                or mount["name"] in read_only
                or not kinds[mount["name"]].isdisjoint(READ_ONLY_VOLUMES),
            )
            for mount in container.get("volumeMounts", [])
        ]
        binds = [
            *self.site.isolation.shared,
            Bind(self.folder.log(name, 0).parent, LOGS, read_only=False),
            Bind(message, log, read_only=False),
            *self._hosts(name),
            *sorted(mounts, key=lambda bind: len(bind.target.parts)),
        ]
        hostname = self.pod["spec"].get("hostname") or self.pod["metadata"]["name"]
        return Container(hostname[:HOSTNAME_LENGTH], self.folder.layers(name), tuple(binds))

    def _hosts(self, container: str) -> list[Bind]:
        """Services by name, on loopback, as all pods here share the machine's network.

        Not for pods of Jobs, which have none: it costs a request to the API server.
        """
        metadata = self.pod["metadata"]
        owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
        if not owners - {"Job"}:
            return []
        namespace = metadata["namespace"]
        services = self.site.api.request("GET", f"/api/v1/namespaces/{namespace}/services")
        file = self.folder.root / "hosts" / container
        file.parent.mkdir(exist_ok=True)
        names = [service["metadata"]["name"] for service in services["items"]]
        lines = [
            f"127.0.0.1 {name} {name}.{namespace} {name}.{namespace}.svc "
            f"{name}.{namespace}.svc.cluster.local"
            for name in names
        ]
        file.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        return [Bind(file, HOSTS, read_only=True)]

    def hook(self, container: dict[str, Any], command: list[str], process: int) -> Launch:
        """A lifecycle hook beside the container, whose first process is `process`.

        Raises as `launch` does.
        """
        name = f"{container['name']}.hook.log"
        if self.site.isolation.available:
            return Launch(
                argv=command,
                env=self._environment(container, self.variables(container), {}),
                cwd=Path(container.get("workingDir") or HOME),
                log=LOGS / "hook.log",
                root=self.folder.root,
                join=process,
            )
        mounts = self._mounts(container)
        return Launch(
            argv=[rewrite(word, mounts) for word in command],
            env=self._environment(container, self.variables(container), mounts),
            cwd=self._working_folder(container, mounts),
            log=self.folder.root / "logs" / name,
            root=self.folder.root,
        )

    def _launch_on_machine(self, container: dict[str, Any], restarts: int) -> Launch:
        """Without namespaces: paths in the manifest become folders of the pod."""
        variables, mounts = self.variables(container), self._mounts(container)
        words = [*container["command"], *container.get("args", [])]
        argv = [rewrite(environment.expand(word, variables), mounts) for word in words]
        argv[0] = self._interpreter(argv[0])
        return Launch(
            argv=argv,
            env=self._environment(container, variables, mounts),
            cwd=self._working_folder(container, mounts),
            log=self.folder.log(container["name"], restarts),
            root=self.folder.root,
        )

    def variables(self, container: dict[str, Any]) -> dict[str, str]:
        """Raises ConfigMissingError, FieldUnknownError, ValueError or ApiError."""
        needed = environment.sources_of(container)
        namespace = self.pod["metadata"]["namespace"]
        sources = volumes.fetch_sources(self.site.api, namespace, needed)
        allocatable = self.node.allocatable
        return environment.container_environment(self.pod, container, sources, allocatable)

    def _mounted(self, mount: dict[str, Any]) -> Path:
        """The file or folder of a volume that a mount shows; a missing folder is made.

        Raises ValueError if a symbolic link leads out of the volume: to files of the machine.
        """
        volume = self.folder.volume(mount["name"]).resolve()
        found: Path = (volume / mount.get("subPath", "")).resolve()
        if not found.is_relative_to(volume):
            raise ValueError(f"subPath {mount['subPath']!r} leads out of {mount['name']}")
        if not found.exists():
            found.mkdir(parents=True)
        return found

    def _mounts(self, container: dict[str, Any]) -> dict[str, Path]:
        mounts = {
            mount["mountPath"]: self.folder.volume(mount["name"]) / mount.get("subPath", "")
            for mount in container.get("volumeMounts", [])
        }
        message = container.get("terminationMessagePath", TERMINATION_LOG)
        return mounts | {message: self.folder.termination_message(container["name"])}

    def _interpreter(self, program: str) -> str:
        """An image's own /usr/local/bin/python becomes the one that the node has."""
        name = Path(program).name
        mapped = name in PYTHONS and not Path(program).exists()
        return str(self.site.state / "bin" / name) if mapped else program

    def _environment(
        self, container: dict[str, Any], variables: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> dict[str, str]:
        """`mounts` maps mount paths to folders of the machine; empty in an isolated container."""
        isolated = self.site.isolation.available
        asked = {name: rewrite(value, mounts) for name, value in variables.items()}
        folders = {
            volume_variable(mount["name"]): str(mounts.get(mount["mountPath"], mount["mountPath"]))
            for mount in container.get("volumeMounts", [])
        }
        given = {
            "PATH": SYSTEM_PATH if isolated else self.site.search_path,
            "HOME": str(HOME if isolated else self.folder.work(container["name"])),
            "HOSTNAME": self.pod["metadata"]["name"],
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.node.metadata_endpoint,
        }
        if not isolated:
            given["TMPDIR"] = str(self.folder.temporary)
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
