"""A real API server without controllers or nodes, for questions that only it can answer."""

import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BINARIES = Path.home() / ".cache/sluice/bin"
QUIET = subprocess.DEVNULL


@dataclass(frozen=True)
class ApiServer:
    """The API server at a port of the loopback device, asked as an administrator."""

    port: int

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def refusal(self, path: str, document: dict[str, Any]) -> str:
        """Why the object could not be created; empty if it could. Nothing is stored."""
        try:
            self.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", document)
        except urllib.error.HTTPError as error:
            return str(json.load(error)["message"])
        return ""

    def ask(self, method: str, path: str, document: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if document is None else json.dumps(document).encode(),
            headers={"Authorization": "Bearer secret", "Content-Type": "application/json"},
        )
        trusting = ssl._create_unverified_context()  # our own server, on loopback
        with urllib.request.urlopen(request, context=trusting, timeout=10) as answer:
            return json.load(answer)

    def wait(self) -> None:
        for _ in range(300):
            try:
                self.get("/api/v1/namespaces/default")
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise TimeoutError("the API server was not ready within a minute")


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server, with a namespace for each Pod Security Standard."""
    folder = tmp_path_factory.mktemp("api-server")
    client, peer, port = free_port(), free_port(), free_port()
    key, tokens = folder / "accounts.key", folder / "tokens.csv"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text('secret,admin,admin,"system:masters"\n')
    address, members = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    etcd = {
        "data-dir": folder / "etcd",
        "listen-client-urls": address,
        "advertise-client-urls": address,
        "listen-peer-urls": members,
        "initial-advertise-peer-urls": members,
        "initial-cluster": f"default={members}",
    }
    server = {
        "etcd-servers": address,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder / "certificates",
        "token-auth-file": tokens,
        "service-account-issuer": "https://sluice",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "RBAC",
        "disable-admission-plugins": "ServiceAccount",
    }
    running = []
    try:
        for name, flags in (("etcd", etcd), ("kube-apiserver", server)):
            binary = max(BINARIES.glob(f"{name}-*"))
            command = [str(binary), *(f"--{flag}={value}" for flag, value in flags.items())]
            running.append(subprocess.Popen(command, stdout=QUIET, stderr=QUIET))
        found = ApiServer(port)
        found.wait()
        for level in ("restricted", "baseline", "privileged"):
            labels = {"pod-security.kubernetes.io/enforce": level}
            namespace = {"metadata": {"name": level, "labels": labels}}
            found.ask("POST", "/api/v1/namespaces", namespace)
        yield found
    finally:
        for program in reversed(running):
            program.terminate()
            program.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
