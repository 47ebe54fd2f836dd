"""Where a pod lives on disk, and its remembered course: all that a restarted node program knows."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from local.node.containers import Layers
from local.node.state import Container, PodState

SAVED = ("containers", "volumes", "logs", "termination")
"""The folders of a pod that belong to a checkpoint of it."""


@dataclass(frozen=True)
class PodFolder:
    """`<state>/pods/<uid>`."""

    root: Path

    def volume(self, name: str) -> Path:
        return self.root / "volumes" / name

    def layers(self, container: str) -> Layers:
        return Layers(self.root / "containers" / container)

    def work(self, container: str) -> Path:
        """Working directory and HOME of a process that is not isolated, if no other is named."""
        return self.root / "work" / container

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    def log(self, container: str, restart: int) -> Path:
        return self.root / "logs" / container / f"{restart}.log"

    def termination_message(self, container: str) -> Path:
        return self.root / "termination" / container

    @property
    def staging(self) -> Path:
        """Copies of files on their way to S3."""
        return self.root / "staging"

    def shrink(self) -> None:
        """Keeps only what `kubectl logs` may still ask for."""
        for name in {*SAVED, "work", "tmp", "staging", "rootfs"} - {"logs"}:
            shutil.rmtree(self.root / name, ignore_errors=True)

    def make(self, containers: list[str]) -> None:
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)  # it holds the pod's Secrets
        (self.root / "termination").mkdir(exist_ok=True)
        for name in containers:
            self.work(name).mkdir(parents=True, exist_ok=True)
            self.log(name, 0).parent.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class PodRecord:
    """A pod's identity and last known course, kept at `<state>/pods/<uid>.json`."""

    namespace: str
    name: str
    node: str
    root: Path
    state: PodState

    def save(self, pods: Path) -> None:
        path = pods / f"{self.state.uid}.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self), default=str))
        temporary.replace(path)

    def discard(self, pods: Path) -> None:
        """Removes logs, volumes and the record: the pod object, or its machine, is gone."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(pods.parent / "restore" / self.state.uid, ignore_errors=True)
        (pods / f"{self.state.uid}.json").unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "PodRecord":
        document = json.loads(path.read_text())
        state = document.pop("state")
        for kind in ("init", "containers"):
            state[kind] = [Container(**one) for one in state[kind]]
        root = Path(document.pop("root"))
        return cls(**document, root=root, state=PodState(**state))
