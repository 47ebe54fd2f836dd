"""What can be chosen about the embedded default, and where its files lie."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

CLONE = Path(__file__).resolve().parents[1]
MANIFESTS = CLONE / "local" / "manifests"
NODE_ROLE = "sluice-node"  # the role of the machines that Karpenter buys
NodeKind = Literal["process", "simulated", "kubelet"]


def default_state() -> Path:
    """$SLUICE_STATE, or `.local` in the clone; of an installed wheel, in the current folder."""
    home = CLONE if (CLONE / "pyproject.toml").exists() else Path.cwd()
    return Path(os.environ.get("SLUICE_STATE", home / ".local")).resolve()


def default_cache() -> Path:
    """`~/.cache/sluice`, or $SLUICE_CACHE: built programs and environments, shared by clones."""
    return Path(os.environ.get("SLUICE_CACHE", Path.home() / ".cache" / "sluice")).resolve()


@dataclass(frozen=True)
class Settings:
    state: Path
    cache: Path
    cluster: str = "batch-1"
    account: str = "123456789012"
    region: str = "us-east-1"
    nodes: NodeKind = "process"
    time_scale: float = 1.0  # of the 120 s between a spot warning and the end
    instance_delay: float = 2.0  # seconds from launch to running
    aws_port: int | None = None  # None: a free one
    cedana: bool = False  # a stand-in for Cedana's service
    add_ons: tuple[str, ...] = ()  # controllers of further kinds of jobs
    interruption_queue: str | None = None  # Karpenter's own; off, because Sluice answers warnings

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"state": str(self.state), "cache": str(self.cache)}

    @classmethod
    def read(cls, path: Path) -> "Settings":
        document = json.loads(path.read_text())
        paths = {name: Path(document[name]) for name in ("state", "cache")}
        return cls(**(document | paths | {"add_ons": tuple(document["add_ons"])}))


@dataclass(frozen=True)
class Layout:
    """The files of one stack below its state folder."""

    state: Path

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def settings(self) -> Path:
        return self.state / "settings.json"

    @property
    def parts(self) -> Path:
        return self.state / "parts.json"

    @property
    def ports(self) -> Path:
        return self.state / "ports.json"

    @property
    def endpoints(self) -> Path:
        return self.state / "endpoints.json"

    @property
    def cedana(self) -> Path:
        """`spec.cedana` for the Cluster object; there while the stack has such a service."""
        return self.state / "cedana.json"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def kept(self) -> Path:
        """Written by a clean stop that keeps the state; without it a state is not trusted."""
        return self.state / "kept"

    @property
    def spare(self) -> Path:
        """What a clean stop kept, while an `up` that resumes it has not ended."""
        return self.state / "data.spare"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def held(self) -> Path:
        """A file named after a part tells the supervisor to leave that part stopped."""
        return self.state / "held"

    @property
    def certs(self) -> Path:
        return self.state / "certs"

    @property
    def data(self) -> Path:
        """What the parts themselves keep: etcd's files, MiniStack's state and objects."""
        return self.state / "data"

    def log(self, part: str) -> Path:
        return self.logs / f"{part}.log"
