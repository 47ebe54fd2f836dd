"""The pinned CDK command line, run for the embedded AWS."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import sluice
from sluice.configuration import FILE_NAME

CLONE = Path(__file__).resolve().parents[1]
_LOG_LINES_SHOWN = 25
# All that a synthesis reads, apart from its configuration.
_SOURCES = ("app.py", "cdk.json", "package-lock.json", "requirements.txt", "requirements/layer.txt")
_SOURCE_FOLDERS = ("infra", "functions")


class DeployError(RuntimeError):
    """A step of the deployment failed; the message ends with the last lines of its log."""


class Cdk:
    """`cdk` with a home of its own.

    It remembers which account an access key belongs to; shared, that memory would mix up the
    embedded AWS with others.
    """

    def __init__(self, endpoints: Mapping[str, str], *, clone: Path = CLONE) -> None:
        self._endpoints, self._clone = endpoints, clone
        state = Path(endpoints["state"])
        self._home, self._log = state / "cdk", state / "logs" / "cdk.log"
        self._assembly = self._home / "out"
        self._mark = self._home / "synthesized"
        self.configuration = self._home / FILE_NAME
        for folder in (self._home, self._log.parent):
            folder.mkdir(parents=True, exist_ok=True)

    def install(self) -> None:
        """Installs the locked release into `node_modules`, unless it is there."""
        package = json.loads((self._clone / "package.json").read_text())
        wanted = package["devDependencies"]["aws-cdk"]
        installed = self._clone / "node_modules" / "aws-cdk" / "package.json"
        if not installed.exists() or json.loads(installed.read_text())["version"] != wanted:
            self._run(str(self._node()), str(self._npm()), "ci", "--no-audit", "--no-fund")

    def _node(self) -> Path:
        path = self._environment()["PATH"]
        node = shutil.which("node", path=path)
        if node is None:
            raise DeployError(f"node is not on the path of the toolchain: {path}")
        return Path(node)

    def _npm(self) -> Path:
        """Find the npm that came with `node`: the wheel of Node puts no working one on PATH."""
        return self._node().resolve().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"

    def is_synthesized(self) -> bool:
        """Whether the assembly was made from exactly these sources and this configuration."""
        return self._mark.exists() and self._mark.read_text() == self._fingerprint()

    def synthesize(self) -> None:
        """Write the assembly anew. Raises DeployError with what the app complained about."""
        fingerprint = self._fingerprint()
        self._mark.unlink(missing_ok=True)
        context = f"config={self.configuration}"
        app = f"{shlex.quote(sys.executable)} app.py"  # cdk.json names the interpreter of a clone
        output = str(self._assembly)
        self._cdk("synth", "--quiet", "--app", app, "--context", context, "--output", output)
        self._mark.write_text(fingerprint)

    def bootstrap(self) -> None:
        account = f"aws://{self._endpoints['account']}/{self._endpoints['region']}"
        self._cdk("bootstrap", account, cwd=self._home)  # where no app slows it down

    def deploy(self) -> None:
        approval = ("--require-approval", "never")
        self._cdk("deploy", "--all", *approval, "--app", str(self._assembly))

    def _cdk(self, *arguments: str, cwd: Path | None = None) -> None:
        program = self._clone / "node_modules" / "aws-cdk" / "bin" / "cdk"
        self._run(str(self._node()), str(program), *arguments, "--ci", "--no-notices", cwd=cwd)

    def _run(self, *command: str, cwd: Path | None = None) -> None:
        done = subprocess.run(
            command,
            cwd=cwd or self._clone,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}\n")
        if done.returncode:
            end = done.stdout.splitlines()[-_LOG_LINES_SHOWN:]
            raise DeployError(
                "\n".join([f"{' '.join(command)}: failed; all of it is in {self._log}", *end])
            )

    def _environment(self) -> dict[str, str]:
        endpoints = self._endpoints
        # The caller's own AWS settings, a profile above all, lead to other accounts.
        passed_on = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
        return passed_on | {
            "PATH": os.pathsep.join([endpoints["path"], os.environ.get("PATH", os.defpath)]),
            "AWS_ENDPOINT_URL": endpoints["aws"],
            "AWS_ACCESS_KEY_ID": endpoints["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": endpoints["secret_access_key"],
            "AWS_REGION": endpoints["region"],
            "AWS_DEFAULT_REGION": endpoints["region"],
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_HOME": str(self._home),
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(sys.version.encode())
        for path in (self.configuration, *_sources(self._clone)):
            digest.update(f"{path}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()


def _sources(clone: Path) -> Iterator[Path]:
    yield from (clone / name for name in _SOURCES)
    for folder in (*(clone / name for name in _SOURCE_FOLDERS), Path(sluice.__file__).parent):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
