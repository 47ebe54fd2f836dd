"""Builds the real cluster from Go modules: etcd, Kubernetes, JobSet, Karpenter for AWS.

    python -m local.build [NAME …]      # what every stack needs, or those named

Each module is a dependency of a go.mod written here, pinned, and checked against Go's checksum
database. Programs land in CACHE/bin/NAME-VERSION, complete or not at all; Go itself comes from
PyPI. A second run finds everything there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.errors import PreparationError
from local.modules import CONTROL_PLANE, MODULES, Change, Module, binary, definitions, missing
from local.settings import default_cache
from local.toolchain import Progress, locked, tool_folders

GIGABYTE = 1_000_000_000
NEEDED_BYTES = 8 * GIGABYTE  # Go's caches of sources and objects grow to 6.2 GB, the programs 0.5
STILL_SECONDS = 20.0


def build(cache: Path, progress: Progress, names: Iterable[str] = CONTROL_PLANE) -> None:
    """Make sure that the named programs are in the cache. Raises PreparationError."""
    names = tuple(names)
    if not missing(cache, names):
        return
    with locked(cache / "build.lock", progress):
        wanted = missing(cache, names)  # another process may have built them meanwhile
        if wanted:
            Builder(cache, progress).build(wanted)


@dataclass
class Builder:
    cache: Path
    progress: Progress
    running: set[subprocess.Popen[str]] = field(default_factory=set)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def scratch(self) -> Path:
        """Go's caches: kept after a failure, so that the next attempt goes on from there."""
        return self.cache / "go-caches"

    def build(self, names: list[str]) -> None:
        self.check_space()
        go = self.folder_of_go()
        began = time.monotonic()
        self.progress(
            f"building {', '.join(names)} from source, once for this machine "
            "(all of it takes two cores about 8 minutes, and 2 GB of downloads)"
        )
        modules = [module for module in MODULES if module.programs.keys() & set(names)]
        # The linker has one thread; with cores to spare the modules are built side by side.
        pool = ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) // 2))
        try:
            jobs = [pool.submit(self.build_module, go, module, names) for module in modules]
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            self.kill_all()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        pool.shutdown()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.progress(f"built everything in {time.monotonic() - began:.0f} s")

    def check_space(self) -> None:
        self.cache.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.cache).free
        if free < NEEDED_BYTES:
            raise PreparationError(
                f"building the control plane takes {NEEDED_BYTES / GIGABYTE:.0f} GB for a while, "
                f"but {self.cache} has {free / GIGABYTE:.1f} GB free: make room, or point "
                "SLUICE_CACHE at another disk"
            )

    def folder_of_go(self) -> Path:
        folders = tool_folders(self.cache, self.progress)
        found = shutil.which("go", path=os.pathsep.join(map(str, folders)))
        if found is None:
            raise PreparationError(f"no program `go` in {folders}: delete it and retry")
        return Path(found).parent

    def build_module(self, go: Path, module: Module, names: list[str]) -> None:
        folder = (
            self.cache / "src" / module.path.replace("/", "_") / (module.version + module.label)
        )
        self.write_module(go, module, folder)
        for name in sorted(module.programs.keys() & set(names)):
            target = binary(self.cache, name)
            if target.exists():
                continue
            began = time.monotonic()
            partial = target.with_name(f"{target.name}.partial")
            target.parent.mkdir(parents=True, exist_ok=True)
            self.go(
                go, folder, f"building {name}",
                "build", "-trimpath", "-ldflags=-s -w", "-o", str(partial), module.programs[name],
            )  # fmt: skip
            partial.rename(target)
            size = target.stat().st_size / 1e6
            self.progress(f"{target.name}: {size:.0f} MB in {time.monotonic() - began:.0f} s")
        if module.objects:
            self.copy_objects(go, module, folder)

    def write_module(self, go: Path, module: Module, folder: Path) -> None:
        """A module that only depends on `module`.

        k8s.io/kubernetes names its staging repositories by local paths; outside its own tree each
        of them needs a replacement by the release with the same minor and patch number.
        """
        imports = "".join(f'import _ "{package}"\n' for package in sorted(module.programs.values()))
        tools = f"//go:build tools\n\npackage tools\n\n{imports}"
        written = folder / "tools.go"
        if (folder / "go.sum").exists() and written.exists() and written.read_text() == tools:
            return
        folder.mkdir(parents=True, exist_ok=True)
        published = Path(
            self.download(go, module.path, module.version, folder)["GoMod"]
        ).read_text()
        language = re.search(r"^go (\S+)", published, re.MULTILINE)
        staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", published, re.MULTILINE)
        release = "v0." + module.version.split(".", 1)[1]
        (folder / "go.mod").write_text(
            f"module sluice.local/build\n\ngo {language[1] if language else '1.26'}\n\n"
            f"require {module.path} {module.version}\n"
            + "".join(f"replace {name} => {name} {release}\n" for name in staging)
            + self.replacement(go, module.change, folder)
        )
        (folder / "go.sum").unlink(missing_ok=True)  # its presence says that the last line is done
        written.write_text(tools)
        self.go(go, folder, f"downloading what {module.path} needs", "mod", "tidy")

    def replacement(self, go: Path, change: Change | None, folder: Path) -> str:
        """The line of go.mod that puts a changed copy of a dependency in its place."""
        if change is None:
            return ""
        source = Path(self.download(go, change.module, change.version, folder)["Dir"])
        copy = folder / "changed"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy, copy_function=shutil.copyfile)  # not the read-only modes
        file = copy / change.file
        text = file.read_text()
        for old, new in change.texts.items():
            if old not in text:
                raise PreparationError(f"{old} is not in {change.file} of {change.module}")
            text = text.replace(old, new)
        file.write_text(text)
        return f"replace {change.module} => ./changed\n"

    def copy_objects(self, go: Path, module: Module, folder: Path) -> None:
        source = Path(self.download(go, module.path, module.version, folder)["Dir"])
        for name in module.programs:
            target = definitions(self.cache, name)
            if target.exists():
                continue
            partial = target.with_name(f"{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for pattern in module.objects:
                for file in source.glob(pattern):
                    shutil.copyfile(file, partial / file.name)
            partial.rename(target)

    def download(self, go: Path, path: str, version: str, folder: Path) -> dict[str, Any]:
        """What Go says about the module in its cache: `Dir`, `GoMod` and more."""
        answer: dict[str, Any] = json.loads(
            self.go(
                go, folder, f"downloading {path} {version}",
                "mod", "download", "-json", f"{path}@{version}",
            )
        )  # fmt: skip
        return answer

    def go(self, go: Path, folder: Path, what: str, *arguments: str) -> str:
        """Run one go command and return what it printed. Raises PreparationError."""
        environment = os.environ | {
            "PATH": f"{go}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "GOMODCACHE": str(self.scratch / "modules"),
            "GOCACHE": str(self.scratch / "objects"),
            # A read-only cache could not be deleted.
            "GOFLAGS": f"-modcacherw {os.environ.get('GOFLAGS', '')}".strip(),
            "GOTOOLCHAIN": "local",  # never a toolchain that nobody pinned
            "GOWORK": "off",
            "CGO_ENABLED": "0",  # no C compiler on a bare machine
        }
        began = time.monotonic()
        process = subprocess.Popen(
            [str(go / "go"), *arguments],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with self.guard:
            self.running.add(process)
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=STILL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    self.progress(f"{what}, {time.monotonic() - began:.0f} s so far")
        finally:
            with self.guard:
                self.running.discard(process)
        if process.returncode:
            raise PreparationError(explained(what, err.strip()))
        return out

    def kill_all(self) -> None:
        with self.guard:
            for process in self.running:
                process.kill()


def explained(what: str, error: str) -> str:
    """The message of a failed go command, with what to do about the usual causes."""
    if re.search(r"dial tcp|i/o timeout|no such host|connection refused|proxyconnect|TLS", error):
        advice = (
            "Go could not reach its module proxy or checksum database: check the network, or set "
            "GOPROXY and GOSUMDB to those that your network offers"
        )
    elif "no space left" in error:
        advice = "the disk is full: make room, or point SLUICE_CACHE at another disk"
    elif "signal: killed" in error:
        advice = "the compiler was killed, most likely for want of memory: it takes about 3 GB"
    else:
        advice = "this is unexpected; the lines above are Go's own"
    last = "\n".join(error.splitlines()[-15:])
    return f"{what} failed:\n{last}\n{advice}. Run the same command again: it goes on from here."


if __name__ == "__main__":
    try:
        build(default_cache(), print, sys.argv[1:] or CONTROL_PLANE)
    except PreparationError as failure:
        sys.exit(str(failure))
