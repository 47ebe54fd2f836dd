"""Connections to an API server: old certificates, dead sockets, and a server that is busy."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sluice.adapters.kubernetes_cluster import ATTEMPTS, KubernetesCluster
from sluice.errors import ClusterError

pytestmark = pytest.mark.enable_socket
POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}


def old_certificates(folder: Path) -> tuple[str, Path]:
    """The authority's PEM and a file with a server's chain, as old EKS clusters have them.

    Neither has an Authority Key Identifier, and the authority has no Key Usage.
    """
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    now = dt.datetime.now(dt.UTC)

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
        )

    authority = (
        builder(authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    server = (
        builder(server_name, server_key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    chain = folder / "server.pem"
    chain.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        + server.public_bytes(serialization.Encoding.PEM)
    )
    return authority.public_bytes(serialization.Encoding.PEM).decode(), chain


class ApiServer:
    """Answers each request by the next of `answers`, which get the handler; then with a pod."""

    def __init__(self, chain: Path) -> None:
        self.answers: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.requests = 0
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                served.requests += 1
                answer = served.answers.pop(0) if served.answers else found
                answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.http.server_address[1]}"


def found(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, POD)


def reply(handler: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    encoded = json.dumps(body).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(encoded)))
    handler.end_headers()
    handler.wfile.write(encoded)


def busy(seconds: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: reply(handler, 429, {"message": "later"}, Retry_After=seconds)


def dead(handler: BaseHTTPRequestHandler) -> None:
    """The connection ends with the request unanswered, as one that was kept for too long."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[ApiServer, str]]:
    authority, chain = old_certificates(tmp_path)
    server = ApiServer(chain)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server, authority
    server.http.shutdown()
    server.http.server_close()
    thread.join()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts as Python 3.13 makes them, on every Python."""
    make = ssl.create_default_context

    def as_in_python_313(**options: Any) -> ssl.SSLContext:
        context = make(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_in_python_313)


@pytest.mark.usefixtures("strict")
def test_an_api_server_with_certificates_of_an_old_cluster_is_trusted(
    server: tuple[ApiServer, str],
) -> None:
    api, authority = server

    assert KubernetesCluster(api.url, authority, lambda: "t").get("Pod", "n", "p") == POD


@pytest.mark.usefixtures("strict")
def test_another_authority_is_not_trusted(
    server: tuple[ApiServer, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    api, _ = server
    other, _ = old_certificates(tmp_path_factory.mktemp("other"))

    with pytest.raises(ClusterError, match="certificate verify failed"):
        KubernetesCluster(api.url, other, lambda: "t").get("Pod", "n", "p")
    assert api.requests == 0


def test_a_dead_connection_costs_no_delivery(server: tuple[ApiServer, str]) -> None:
    api, authority = server
    cluster = KubernetesCluster(api.url, authority, lambda: "t")
    api.answers = [found, dead]

    assert [cluster.get("Pod", "n", "p") for _ in range(2)] == [POD, POD]
    assert api.requests == 3


def test_a_server_that_never_answers_is_given_up(server: tuple[ApiServer, str]) -> None:
    api, authority = server
    api.answers = [dead] * 10

    with pytest.raises(ClusterError, match="does not answer"):
        KubernetesCluster(api.url, authority, lambda: "t").get("Pod", "n", "p")

    assert api.requests == ATTEMPTS


def test_a_short_retry_after_is_waited_for(server: tuple[ApiServer, str]) -> None:
    api, authority = server
    api.answers = [busy("0"), busy("0")]

    assert KubernetesCluster(api.url, authority, lambda: "t").get("Pod", "n", "p") == POD
    assert api.requests == 3


@pytest.mark.parametrize("wait", ["60", "soon", "-1"])
def test_a_long_retry_after_is_the_callers_to_wait_for(
    server: tuple[ApiServer, str], wait: str
) -> None:
    api, authority = server
    api.answers = [busy(wait)]

    with pytest.raises(ClusterError, match="later") as refused:
        KubernetesCluster(api.url, authority, lambda: "t").get("Pod", "n", "p")

    assert (refused.value.status, api.requests) == (429, 1)
