"""How fast a process is saved and restored by way of S3, beside the parts that bound it.

    python -m tests.bench.bench_checkpoints [--megabytes 56 1000]

On this machine alone: CRIU, the agent's upload and the process node's download, against an S3 in
memory on loopback (gofakes3, built here; needs Go and root). No Kubernetes and no control plane is
in these numbers: the standstill of a move has their seconds too. The process rewrites 1 % or 20 %
of its memory in a second; every dump is whole, so that makes little difference.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psutil

from agent.upload import upload
from local.node.checkpoint import XATTRS
from local.node.criu import Criu, probe
from local.node.download import fetch
from local.settings import default_cache

SERVER = Path(__file__).parent / "fast_s3"
BUCKET = "checkpoints"
MEBIBYTE = 1 << 20
SHARES = (0.01, 0.20)
PATIENCE_SECONDS = 60
CHANGING = """
import os, sys, time
size, share, beat = int(sys.argv[1]) << 20, float(sys.argv[2]), sys.argv[3]
held = bytearray(b"".join(os.urandom(1 << 20) for _ in range(size >> 20)))
pages, place, step = size >> 12, 0, 0
while True:
    began = time.time()
    for _ in range(int(pages * share / 20)):
        held[place << 12] = step & 255
        place = (place + 1) % pages
    step += 1
    descriptor = os.open(beat, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, str(step).encode())
    os.close(descriptor)
    time.sleep(max(0, 0.05 - (time.time() - began)))
"""


@dataclass(frozen=True)
class Measured:
    """Seconds of each part of one save and restore, and the bytes that travelled."""

    size: int
    dump: float
    store: float
    fetch: float
    restore: float

    @property
    def standstill(self) -> float:
        return self.dump + self.store + self.fetch + self.restore

    @property
    def saving(self) -> float:
        """MB/s from the order until the archive is whole in S3."""
        return self.size / (self.dump + self.store) / 1e6


@contextlib.contextmanager
def fast_s3(folder: Path) -> Iterator[Any]:
    """A client of an S3 in memory, which ends with this context."""
    program = folder / "fast-s3"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=SERVER, check=True)
    server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    address = server.stdout.readline().strip()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    client.create_bucket(Bucket=BUCKET)
    try:
        yield client
    finally:
        assert server.stdin
        server.stdin.close()
        server.wait()


def speed_of_disk(folder: Path, megabytes: int) -> float:
    """MB/s of writing random bytes until they are on the disk."""
    data = os.urandom(MEBIBYTE)
    began = time.monotonic()
    with (folder / "written").open("wb", buffering=0) as file:
        for _ in range(megabytes):
            file.write(data)
        os.fsync(file.fileno())
    seconds = time.monotonic() - began
    (folder / "written").unlink()
    return megabytes * MEBIBYTE / seconds / 1e6


def speed_of_s3(client: Any, folder: Path, megabytes: int) -> tuple[float, float]:
    """MB/s of the same client alone, with a file that is in memory: stored, fetched."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        for _ in range(megabytes):
            file.write(os.urandom(MEBIBYTE))
        file.flush()
        began = time.monotonic()
        size = upload(Path(file.name), client, BUCKET, "speed").size
        stored = time.monotonic()
    with io.FileIO(os.devnull, "wb") as nowhere:
        fetch(client, BUCKET, "speed", nowhere, lambda: None)  # type: ignore[arg-type]
    fetched = time.monotonic()
    client.delete_object(Bucket=BUCKET, Key="speed")
    return size / (stored - began) / 1e6, size / (fetched - stored) / 1e6


def started(folder: Path, megabytes: int, share: float) -> tuple[subprocess.Popen[bytes], Path]:
    """A process in a PID namespace of its own, and the file with its steps."""
    beat = folder / "beat"
    program = [sys.executable, "-I", "-c", CHANGING, str(megabytes), str(share), str(beat)]
    quiet = subprocess.DEVNULL
    command = ["unshare", "--pid", "--fork", "setsid", *program]
    parent = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    await_step(beat, 20)
    return parent, beat


def step_of(beat: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(beat.read_text())
    return 0


def await_step(beat: Path, step: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while step_of(beat) < step:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{beat} has not come to {step}")
        time.sleep(0.005)


def saved_and_restored(
    criu: Criu, client: Any, folder: Path, megabytes: int, share: float
) -> Measured:
    """One process, dumped, stored, fetched and restored; the source ends with its dump."""
    parent, beat = started(folder, megabytes, share)
    (child,) = psutil.Process(parent.pid).children()
    images, there = folder / "images", folder / "there"
    images.mkdir()
    there.mkdir()
    command = [str(criu.program), "dump", "--tree", str(child.pid), "--images-dir", str(images)]
    began = time.monotonic()
    subprocess.run([*command, "--log-file", "dump.log", "-v1"], check=True)
    dumped = time.monotonic()
    parent.wait()
    known, pipe = step_of(beat), folder / "pipe"
    os.mkfifo(pipe)
    packing = subprocess.Popen(["tar", *XATTRS, "-C", str(images), "-cf", str(pipe), "."])
    size = upload(pipe, client, BUCKET, "one").size
    packing.wait()
    stored = time.monotonic()
    unpacking = subprocess.Popen(
        ["tar", *XATTRS, "-C", str(there), "-xpf", "-"], stdin=subprocess.PIPE
    )
    assert unpacking.stdin
    fetch(client, BUCKET, "one", unpacking.stdin, lambda: None)  # type: ignore[arg-type]
    unpacking.stdin.close()
    unpacking.wait()
    fetched = time.monotonic()
    subprocess.run(criu.restore_command(there, folder / "pid", Path("/"), {}), check=True)
    restored = int((folder / "pid").read_text())
    try:
        await_step(beat, known + 1)
        running = time.monotonic()
    finally:
        os.kill(restored, signal.SIGKILL)
        client.delete_object(Bucket=BUCKET, Key="one")
    return Measured(size, dumped - began, stored - dumped, fetched - stored, running - fetched)


def reap() -> None:
    """What was restored is a child of this program, or of whoever adopted it."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[56, 1000])
    chosen = parser.parse_args()
    criu = probe(None, default_cache())
    if criu.program is None or shutil.which("go") is None:
        sys.exit(criu.reason or "Go is needed to build the S3")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; MB/s and seconds")
    with tempfile.TemporaryDirectory() as name, fast_s3(Path(name)) as client:
        for megabytes in chosen.megabytes:
            disk = speed_of_disk(Path(name), megabytes)
            stored, fetched = speed_of_s3(client, Path(name), megabytes)
            print(
                f"\n{megabytes} MB: disk {disk:.0f}, S3 {stored:.0f} stored, {fetched:.0f} fetched"
            )
            for share in SHARES:
                folder = Path(name) / f"{megabytes}-{share}"
                folder.mkdir()
                one = saved_and_restored(criu, client, folder, megabytes, share)
                dump = one.size / one.dump / 1e6
                slowest = min(disk, dump, stored)
                print(
                    f"  {share:.0%} a second: dump {one.dump:.2f} ({dump:.0f} MB/s), store"
                    f" {one.store:.2f}, fetch {one.fetch:.2f}, restore {one.restore:.2f}: stands"
                    f" still for {one.standstill:.2f}; saved at {one.saving:.0f} MB/s,"
                    f" {one.saving / slowest:.2f} of the slowest part"
                )
                shutil.rmtree(folder)
                reap()
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
