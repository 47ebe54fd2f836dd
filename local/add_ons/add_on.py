"""One controller beside Kubernetes' own: its part of the stack, and what it needs in the cluster.

It runs under the RBAC of its own release and under the account name that it has there, which the
admission policies of tenant namespaces know.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from local.apply import ApiServer, apply_all, read_manifests
from local.control_plane import account_line, kubeconfig
from local.endpoints import Endpoints
from local.files import write_whole
from local.modules import binary, definitions
from local.parts import Health, Part, Step
from local.settings import MANIFESTS, Layout, Settings

Ports = Mapping[str, int]
Arguments = Callable[[Path, Ports], tuple[tuple[str, ...], dict[str, str]]]
"""Takes the folder with kubeconfig and certificate; returns arguments and environment."""


@dataclass(frozen=True)
class AddOn:
    """`user` is the controller's account; `port` is that of its health."""

    name: str
    program: str
    user: str
    arguments: Arguments
    ports: tuple[str, ...]

    @property
    def port(self) -> str:
        return self.ports[0]

    @property
    def objects(self) -> str:
        """The step that applies what the controller needs in the cluster."""
        return f"{self.program} objects"

    def account(self, token: str) -> str:
        """The controller's line of the API server's token file."""
        return account_line(token, self.user, self.program)

    def part(self, settings: Settings, endpoints: Endpoints, ports: Ports, token: str) -> Part:
        """The controller; writes the files that it reads."""
        layout = Layout(settings.state)
        folder = layout.certs / self.program
        folder.mkdir(exist_ok=True)
        write_whole(folder / "kubeconfig", kubeconfig(endpoints, self.program, token))
        write_whole(folder / "tls.crt", (layout.certs / "apiserver.crt").read_text())
        write_whole(folder / "tls.key", (layout.certs / "apiserver.key").read_text())
        arguments, environment = self.arguments(folder, ports)
        return Part(
            self.program,
            (str(binary(settings.cache, self.program)), *arguments),
            port=ports[self.port],
            health=Health(f"http://127.0.0.1:{ports[self.port]}/readyz"),
            after=(self.objects,),
            environment={"KUBECONFIG": str(folder / "kubeconfig"), **environment},
        )

    def step(self, settings: Settings, endpoints: Endpoints, ports: Ports) -> Step:
        """The kinds, the controller's rights, and where the API server finds its webhooks."""
        values = {"AUTHORITY": endpoints.certificate_authority} | {
            name.upper().replace("-", "_"): str(ports[name]) for name in self.ports
        }

        def run() -> None:
            server = ApiServer(Layout(settings.state).kubeconfig)
            apply_all(server, read_manifests(definitions(settings.cache, self.program), {}))
            apply_all(server, read_manifests(MANIFESTS / self.program, values))

        return Step(self.objects, run, after=("kube-apiserver",))
