"""The real JobSet controller: it makes the Jobs of a JobSet, as the add-on does on EKS.

It runs under the RBAC of its own release and under the account name that it has there, which the
admission policies of tenant namespaces know. Its webhooks, which fill in the defaults of a JobSet,
are served on loopback with the certificate of the API server.
"""

import json
from pathlib import Path

from local.apply import ApiServer, apply_all, read_manifests
from local.control_plane import FAST, account_line, kubeconfig
from local.endpoints import Endpoints
from local.files import write_whole
from local.modules import binary, definitions
from local.parts import Health, Part
from local.settings import Layout, Settings

NAME = "jobset"
OBJECTS = "jobset objects"  # the step that applies what the controller needs in the cluster
MANIFESTS = Path(__file__).with_name("manifests") / NAME
NAMESPACE = "jobset-system"
USER = f"system:serviceaccount:{NAMESPACE}:jobset-controller-manager"


def account(token: str) -> str:
    """The controller's line of the API server's token file."""
    return account_line(token, USER, NAME)


def part(settings: Settings, endpoints: Endpoints, ports: dict[str, int], token: str) -> Part:
    """The controller; writes the files that it reads."""
    layout = Layout(settings.state)
    folder = layout.certs / NAME
    folder.mkdir(exist_ok=True)
    write_whole(folder / "kubeconfig", kubeconfig(endpoints, NAME, token))
    write_whole(folder / "tls.crt", (layout.certs / "apiserver.crt").read_text())
    write_whole(folder / "tls.key", (layout.certs / "apiserver.key").read_text())
    (folder / "configuration.json").write_text(json.dumps(configuration(folder, ports)))
    return Part(
        NAME,
        (
            str(binary(settings.cache, NAME)),
            f"--kubeconfig={folder / 'kubeconfig'}",
            f"--config={folder / 'configuration.json'}",
            "--zap-devel=false",
            *FAST,
        ),
        port=ports[NAME],
        health=Health(f"http://127.0.0.1:{ports[NAME]}/readyz"),
        after=(OBJECTS,),
    )


def configuration(folder: Path, ports: dict[str, int]) -> dict[str, object]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {
            "host": "127.0.0.1",
            "port": ports["jobset-webhook"],
            "certDir": str(folder),
        },
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports[NAME]}"},
        "metrics": {"bindAddress": "0"},  # none
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def apply_objects(settings: Settings, endpoints: Endpoints, ports: dict[str, int]) -> None:
    """The kind JobSet, the controller's rights, and where the API server finds its webhooks."""
    values = {
        "NAMESPACE": NAMESPACE,
        "WEBHOOK": f"https://127.0.0.1:{ports['jobset-webhook']}",
        "AUTHORITY": endpoints.certificate_authority,
    }
    server = ApiServer(Layout(settings.state).kubeconfig)
    apply_all(server, read_manifests(definitions(settings.cache, NAME), {}))
    apply_all(server, read_manifests(MANIFESTS, values))
