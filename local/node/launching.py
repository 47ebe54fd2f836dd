"""From a container's manifest to a process: command, environment, working folder, log."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.node import environment, init, volumes
from local.node.folders import PodFolder
from local.node.paths import rewrite, volume_variable
from local.node.processes import Launch
from local.node.site import Site

PYTHONS = ("python", "python3")


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

    def launch(self, container: dict[str, Any], restarts: int, *, isolated: bool) -> Launch:
        """The container's own process, below an init in a PID namespace if `isolated`.

        Raises ConfigMissingError, FieldUnknownError, ValueError or ApiError.
        """
        variables, mounts = self._variables(container), self._mounts(container)
        words = [*container["command"], *container.get("args", [])]
        argv = [rewrite(environment.expand(word, variables), mounts) for word in words]
        argv[0] = self._interpreter(argv[0])
        if isolated:
            argv = [sys.executable, "-I", "-S", init.__file__, *argv]
        return Launch(
            argv=argv,
            env=self._environment(container, variables, mounts),
            cwd=self._working_folder(container, mounts),
            log=self.folder.log(container["name"], restarts),
            root=self.folder.root,
            isolated=isolated,
        )

    def hook(self, container: dict[str, Any], command: list[str]) -> Launch:
        """A lifecycle hook beside the container. Raises as `launch` does."""
        mounts = self._mounts(container)
        return Launch(
            argv=[rewrite(word, mounts) for word in command],
            env=self._environment(container, self._variables(container), mounts),
            cwd=self._working_folder(container, mounts),
            log=self.folder.root / "logs" / f"{container['name']}.hook.log",
            root=self.folder.root,
        )

    def _variables(self, container: dict[str, Any]) -> dict[str, str]:
        needed = environment.sources_of(container)
        namespace = self.pod["metadata"]["namespace"]
        sources = volumes.fetch_sources(self.site.api, namespace, needed)
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
