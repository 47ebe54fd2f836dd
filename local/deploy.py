"""Deploys the real stacks with the real CDK command line into the embedded AWS."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.exceptions import ClientError
from sluice.configuration import FILE_NAME, parse

CLONE = Path(__file__).resolve().parents[1]
_LOG_LINES_SHOWN = 25


class DeployError(RuntimeError):
    """A step of the deployment failed; the message ends with the last lines of its log."""


def deploy(
    endpoints: Mapping[str, str],
    *,
    progress: Callable[[str], None],
    namespaces: Sequence[str] = ("default",),
) -> dict[str, str]:
    """Bootstraps the embedded account where needed and runs `cdk deploy --all`.

    `endpoints` is the content of endpoints.json; `namespaces` are those of the tenants. Returns
    what the stacks publish by SSM parameter, without the deployment's prefix: `queues/submissions`,
    `tables/workloads`, `api` … The same goes to outputs.json beside endpoints.json.
    Raises DeployError with the reason that the CDK gave.
    """
    cdk = _Cdk(endpoints)
    settings = _settings(endpoints, namespaces)
    name = parse(settings).name  # also checks them, before anything is started
    cdk.configuration.write_text(yaml.safe_dump(settings))
    cdk.install()
    with ThreadPoolExecutor() as pool:
        progress("synthesizing the stacks")
        synthesis = pool.submit(cdk.synthesize)
        if not _is_bootstrapped(endpoints):
            progress("bootstrapping the account")
            cdk.bootstrap()
        synthesis.result()
    progress("deploying the stacks")
    cdk.deploy()
    published = _published(endpoints, name)
    Path(endpoints["state"], "outputs.json").write_text(
        json.dumps(published, indent=2, sort_keys=True) + "\n"
    )
    return published


class _Cdk:
    """The pinned CDK command line, with a home of its own.

    It remembers which account an access key belongs to; shared, that memory would mix up the
    embedded AWS with others.
    """

    def __init__(self, endpoints: Mapping[str, str]) -> None:
        self._endpoints = endpoints
        state = Path(endpoints["state"])
        self._home, self._log = state / "cdk", state / "logs" / "cdk.log"
        self._assembly = self._home / "out"
        self.configuration = self._home / FILE_NAME
        for folder in (self._home, self._log.parent):
            folder.mkdir(parents=True, exist_ok=True)

    def install(self) -> None:
        """Installs the locked release into `node_modules`, unless it is there."""
        wanted = json.loads((CLONE / "package.json").read_text())["devDependencies"]["aws-cdk"]
        installed = CLONE / "node_modules" / "aws-cdk" / "package.json"
        if not installed.exists() or json.loads(installed.read_text())["version"] != wanted:
            self._run("node", str(self._npm()), "ci", "--no-audit", "--no-fund")

    def _npm(self) -> Path:
        """Find the npm that came with `node`: the wheel of Node puts no working one on PATH."""
        path = self._environment()["PATH"]
        node = shutil.which("node", path=path)
        if node is None:
            raise DeployError(f"node is not on the path of the toolchain: {path}")
        return Path(node).resolve().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"

    def synthesize(self) -> None:
        context = f"config={self.configuration}"
        self._cdk("synth", "--quiet", "--context", context, "--output", str(self._assembly))

    def bootstrap(self) -> None:
        account = f"aws://{self._endpoints['account']}/{self._endpoints['region']}"
        self._cdk("bootstrap", account, cwd=self._home)  # where no app slows it down

    def deploy(self) -> None:
        approval = ("--require-approval", "never")
        self._cdk("deploy", "--all", *approval, "--app", str(self._assembly))

    def _cdk(self, *arguments: str, cwd: Path = CLONE) -> None:
        program = CLONE / "node_modules" / "aws-cdk" / "bin" / "cdk"
        self._run("node", str(program), *arguments, "--ci", "--no-notices", cwd=cwd)

    def _run(self, *command: str, cwd: Path = CLONE) -> None:
        done = subprocess.run(
            command,
            cwd=cwd,
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
        return os.environ | {
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


def _settings(endpoints: Mapping[str, str], namespaces: Sequence[str]) -> dict[str, Any]:
    """Take the clone's sluice.yaml; change what differs here: machine, cluster, no keeping."""
    document = yaml.safe_load((CLONE / FILE_NAME).read_text(encoding="utf-8")) or {}
    buckets = (document.get("submissions") or {}).get("manifestBuckets", [])
    machine = "arm64" if platform.machine() in {"arm64", "aarch64"} else "x86_64"
    return document | {
        "region": endpoints["region"],
        "runtime": {"architecture": machine},
        "state": {"retain": False},
        "submissions": {"manifestBuckets": buckets},
        "clusters": [{"name": endpoints["cluster_name"], "namespaces": list(namespaces)}],
    }


def _is_bootstrapped(endpoints: Mapping[str, str]) -> bool:
    try:
        client = _session(endpoints).client("cloudformation", endpoint_url=endpoints["aws"])
        client.describe_stacks(StackName="CDKToolkit")
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":  # there is no such stack
            return False
        raise
    return True


def _published(endpoints: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"/{name}/"
    client = _session(endpoints).client("ssm", endpoint_url=endpoints["aws"])
    pages = client.get_paginator("get_parameters_by_path")
    return {
        parameter["Name"].removeprefix(prefix): parameter["Value"]
        for page in pages.paginate(Path=prefix, Recursive=True)
        for parameter in page["Parameters"]
    }


def _session(endpoints: Mapping[str, str]) -> boto3.Session:
    return boto3.Session(
        region_name=endpoints["region"],
        aws_access_key_id=endpoints["access_key_id"],
        aws_secret_access_key=endpoints["secret_access_key"],
    )
