"""The Debian root file system that all nodes share, and the layers of images made from it.

It is built by debootstrap, which checks its signatures, once for a machine and version, in the
cache. A debootstrap that is not installed is fetched from the machine's own package sources into
the cache, with the signature checked by apt; the system stays as it is.
"""

import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

from local.errors import PreparationError
from local.toolchain import Progress, locked

HERE = Path(__file__).resolve().parent
SUITE = "forky"  # Debian 12 has no CRIU and an older containerd, without restore
REVISION = 2  # of what is made here; another one makes another root file system
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# CRIU calls iptables-restore for a pod with a network of its own; python3 is for the jobs.
PACKAGES = ("containerd", "runc", "criu", "containernetworking-plugins", "iptables", "python3")
# What no job needs of a node's root file system.
NODE_ONLY = (
    "boot", "dev", "proc", "sys", "run", "debootstrap",
    "etc/containerd", "etc/cni",
    "usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc",
    "usr/sbin/criu", "usr/bin/crit", "usr/lib/cni", "usr/local",
    "usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man",
    "var/cache", "var/lib/apt", "var/lib/dpkg/info", "var/log",
)  # fmt: skip
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CRIU_WRAPPER = """#!/bin/sh
LD_PRELOAD=/usr/local/lib/rlimits.so exec /usr/sbin/criu "$@"
"""


def base(cache: Path) -> Path:
    """The root file system; beside it lie the layers `.pause.tar` and `.python.tar`."""
    return cache / f"kubelet-base-{SUITE}-{REVISION}"


def layer(cache: Path, name: str) -> Path:
    return base(cache).with_suffix(f".{name}.tar")


def prepare(cache: Path, progress: Progress) -> Path:
    """The root file system, built now if need be. Raises PreparationError.

    A folder under its final name is complete, its layers included.
    """
    ready = base(cache)
    if ready.exists():
        return ready
    with locked(cache / "kubelet-base.lock", progress):
        if not ready.exists():
            progress(f"building the nodes' root file system, Debian {SUITE}: about a minute")
            _build(cache, ready, progress)
    return ready


def _build(cache: Path, ready: Path, progress: Progress) -> None:
    partial = ready.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    if not KEYRING.exists():
        raise PreparationError(f"{KEYRING} is missing: install debian-archive-keyring")
    program, environment = _debootstrap(cache)
    command = [
        "unshare", "--mount", program, "--variant=minbase", f"--keyring={KEYRING}",
        "--include=" + ",".join(PACKAGES), SUITE, str(partial), mirror(), "sid",
    ]  # fmt: skip  # "sid" is the script: an older debootstrap does not know newer suites
    log = ready.with_suffix(".log")
    with log.open("w") as output:
        ended = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            env=os.environ | environment,
        )
    if ended.returncode:
        last = log.read_text().strip().rpartition("\n")[2]
        raise PreparationError(
            f"debootstrap could not make the nodes' root file system from {mirror()}: {last}; "
            f"see {log}"
        )
    _compile("rlimits.c", partial / "usr/local/lib/rlimits.so", "-shared", "-fPIC")
    wrapper = partial / "usr/local/sbin/criu"
    wrapper.write_text(CRIU_WRAPPER)
    wrapper.chmod(0o755)
    _compile("pause.c", partial / "usr/local/lib/pause/pause", "-static")
    _pack(partial / "usr/local/lib/pause", layer(cache, "pause"))
    _pack(partial, layer(cache, "python"), without=NODE_ONLY)
    shutil.rmtree(partial / "var/cache/apt/archives")
    partial.rename(ready)
    progress(f"the nodes' root file system is ready: {versions(ready)}")


def _debootstrap(cache: Path) -> tuple[str, dict[str, str]]:
    """The program and what it wants in its environment. Raises PreparationError."""
    if installed := shutil.which("debootstrap"):
        return installed, {}
    folder = cache / "debootstrap"
    program = folder / "usr/sbin/debootstrap"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for command in (
                ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "debootstrap"],
                ["sh", "-c", "dpkg-deb --extract debootstrap_*.deb ."],
            ):
                subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PreparationError(
                "debootstrap is missing and could not be fetched from the machine's package "
                "sources: apt-get install debootstrap"
            ) from error
    return str(program), {"DEBOOTSTRAP_DIR": str(folder / "usr/share/debootstrap")}


def mirror() -> str:
    """The Debian mirror that this machine is set up with. Raises PreparationError without one."""
    try:
        uris = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
            check=True,
            text=True,
            capture_output=True,
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise PreparationError("apt-get does not tell this machine's Debian mirror") from error
    for uri in uris:
        if uri.rstrip("/").endswith("/debian"):
            return uri
    raise PreparationError("no Debian mirror is set up; add one to the sources of apt")


def _compile(source: str, target: Path, *options: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O1", "-Wall", *options, "-o", str(target), str(HERE / source)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise PreparationError(f"gcc could not compile {source}: {ended.stderr.strip()}")


def _pack(folder: Path, target: Path, without: tuple[str, ...] = ()) -> None:
    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if entry.name.removeprefix("./") in without else entry

    with tarfile.open(target, "w") as tar:
        tar.add(folder, arcname=".", filter=kept)
        if without:  # the kernel's file systems are mounted there, and jobs say `python`
            for name in ("dev", "proc", "sys", "run"):
                tar.addfile(_folder(name))
            link = tarfile.TarInfo("./usr/bin/python")
            link.type, link.linkname = tarfile.SYMTYPE, "python3"
            tar.addfile(link)


def _folder(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(f"./{name}")
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return entry


def versions(root: Path) -> str:
    """Name and version of what the nodes are made of, for a line of a log."""
    shown = subprocess.run(
        [
            *("dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "--show"),
            *("--showformat", "${Package} ${Version}\n", *PACKAGES),
        ],
        check=True,
        text=True,
        capture_output=True,
    ).stdout
    return ", ".join(shown.splitlines())


def version_of(root: Path, package: str) -> str:
    """The upstream part of a package's version: "4.2.1" for 4.2.1-1."""
    found = dict(entry.split(" ", 1) for entry in versions(root).split(", "))
    return found[package].partition("-")[0]


def architecture() -> str:
    """Of this machine, as images and nodes name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
