"""A real API server with etcd and the controllers, and nothing else."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from local import control_plane
from local.build import build
from local.certificates import make_certificates
from local.endpoints import Endpoints
from local.parts import Part
from local.plan import PORTS
from local.ports import choose_ports
from local.settings import Layout, Settings, default_cache

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
START_SECONDS = 90.0
STOP_SECONDS = 20.0


@contextmanager
def running(state: Path) -> Iterator[tuple[str, str, str]]:
    """Endpoint, PEM of the authority and token of an administrator, while the block runs."""
    settings, layout = Settings(state, default_cache()), Layout(state)
    build(settings.cache, print, PROGRAMS)
    for folder in (layout.logs, layout.data):
        folder.mkdir()
    make_certificates(layout.certs)
    ports = choose_ports(layout.ports, PORTS, {})
    endpoints = Endpoints(
        aws="http://127.0.0.1:9",
        ec2="http://127.0.0.1:9",
        region="us-east-1",
        account="123456789012",
        access_key_id="x",
        secret_access_key="x",
        kubeconfig=str(layout.kubeconfig),
        cluster_name="contract",
        cluster_endpoint=f"https://127.0.0.1:{ports['kube-apiserver']}",
        certificate_authority=control_plane.authority_data(layout),
        state=str(state),
        path=os.environ["PATH"],
    )
    control_plane.write_credentials(layout, endpoints, ports, "administrator")
    parts = {part.name: part for part in control_plane.control_plane(settings, endpoints, ports)}
    with ExitStack() as stack:
        for name in PROGRAMS:
            stack.enter_context(started(parts[name], layout.log(name)))
        authority = (layout.certs / "ca.crt").read_text()
        yield endpoints.cluster_endpoint, authority, "administrator"


@contextmanager
def started(part: Part, log: Path) -> Iterator[None]:
    """One program, healthy; stopped afterwards."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            part.command, stdout=output, stderr=output, env=os.environ | part.environment
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while part.health is not None and not part.health.is_good():
            assert time.monotonic() < deadline, f"{part.name} does not start; see {log}"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
