"""The stand-in for Cedana as a part of the stack: its account, its token, and what names both.

It acts under the account that the vendor's controller would have, so the admission policies of
tenants' namespaces let it bring pods back only where `clusters[].cedana` says so.
"""

import json
import sys

import boto3

from local.apply import ApiServer, apply_all, read_manifests
from local.control_plane import account_line, kubeconfig
from local.endpoints import Endpoints
from local.files import write_json, write_whole
from local.parts import Health, Part
from local.settings import MANIFESTS, Layout, Settings

NAME = "cedana"
OBJECTS = "cedana objects"  # the step that gives its account rights and stores its token
NAMESPACE = "cedana-systems"
ACCOUNT = f"{NAMESPACE}/{NAME}"
USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"


def account(token: str) -> str:
    """Its line of the API server's token file."""
    return account_line(token, USER, NAME)


def part(settings: Settings, endpoints: Endpoints, ports: dict[str, int], token: str) -> Part:
    """The program; writes the file by which it enters the cluster."""
    layout = Layout(settings.state)
    folder = layout.certs / NAME
    folder.mkdir(exist_ok=True)
    write_whole(folder / "kubeconfig", kubeconfig(endpoints, NAME, token))
    return Part(
        NAME,
        (
            sys.executable, "-m", "local.cedana",
            "--port", str(ports[NAME]),
            "--kubeconfig", str(folder / "kubeconfig"),
            "--token", str(layout.certs / "cedana-token"),
            "--folder", str(layout.data / NAME),
        ),
        port=ports[NAME],
        health=Health(f"http://127.0.0.1:{ports[NAME]}/healthz"),
        after=(OBJECTS,),
        restartable=False,  # it remembers its actions in memory alone
    )  # fmt: skip


def prepare(settings: Settings, endpoints: Endpoints, ports: dict[str, int], token: str) -> None:
    """Its rights in the cluster, its token in Secrets Manager, and both in a file for `deploy`."""
    layout = Layout(settings.state)
    server = ApiServer(layout.kubeconfig)
    apply_all(server, read_manifests(MANIFESTS / NAME, {}))
    session = boto3.Session(
        aws_access_key_id=endpoints.access_key_id,
        aws_secret_access_key=endpoints.secret_access_key,
        region_name=endpoints.region,
    )
    secrets = session.client("secretsmanager", endpoint_url=endpoints.aws)
    known = secrets.list_secrets(Filters=[{"Key": "name", "Values": [NAME]}])["SecretList"]
    made = known[0] if known else secrets.create_secret(Name=NAME, SecretString=token)
    spec = {
        "url": f"http://127.0.0.1:{ports[NAME]}",
        "clusterId": endpoints.cluster_name,
        "tokenSecret": made["ARN"],
    }
    write_json(layout.cedana, spec)


def settings_of(layout: Layout) -> dict[str, str] | None:
    """`clusters[].cedana` for sluice.yaml; None for a stack without it."""
    if not layout.cedana.exists():
        return None
    secret = json.loads(layout.cedana.read_text())["tokenSecret"]
    return {"tokenSecret": secret, "serviceAccount": ACCOUNT}
