"""Deploys the real stacks with the real CDK command line into the embedded AWS."""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.exceptions import ClientError
from sluice.configuration import FILE_NAME, parse

from local.cdk import CLONE, Cdk, DeployError
from local.cedana.part import settings_of
from local.settings import Layout

__all__ = ["DeployError", "deploy"]


def deploy(
    endpoints: Mapping[str, str],
    *,
    progress: Callable[[str], None],
    namespaces: Sequence[str] = ("default",),
    agent: str | None = None,
    kinds: Sequence[str] = (),
) -> dict[str, str]:
    """Bootstraps the embedded account where needed and runs `cdk deploy --all`.

    `endpoints` is the content of endpoints.json; `namespaces` are those of the tenants; `agent` is
    the image of the nodes' agent, if it shall run as a DaemonSet;
    `kinds` are those of add-ons. Returns what the stacks publish
    by SSM parameter, without the deployment's prefix: `queues/submissions`, `tables/workloads`,
    `api` … The same goes to outputs.json beside endpoints.json.
    Raises DeployError with the reason that the CDK gave.
    """
    cdk = Cdk(endpoints)
    settings = _settings(endpoints, namespaces, agent, kinds)
    name = parse(settings).name  # also checks them, before anything is started
    cdk.configuration.write_text(yaml.safe_dump(settings))
    cdk.install()
    with ThreadPoolExecutor() as pool:
        synthesis = None
        if not cdk.is_synthesized():
            progress("synthesizing the stacks")
            synthesis = pool.submit(cdk.synthesize)
        if not _is_bootstrapped(endpoints):
            progress("bootstrapping the account")
            cdk.bootstrap()
        if synthesis:
            synthesis.result()
    progress("deploying the stacks")
    cdk.deploy()
    published = _published(endpoints, name)
    Path(endpoints["state"], "outputs.json").write_text(
        json.dumps(published, indent=2, sort_keys=True) + "\n"
    )
    return published


def _settings(
    endpoints: Mapping[str, str], namespaces: Sequence[str], agent: str | None, kinds: Sequence[str]
) -> dict[str, Any]:
    """Take the clone's sluice.yaml; change what differs here: machine, cluster, no keeping."""
    document = yaml.safe_load((CLONE / FILE_NAME).read_text(encoding="utf-8")) or {}
    buckets = (document.get("submissions") or {}).get("manifestBuckets", [])
    cedana = settings_of(Layout(Path(endpoints["state"])))
    cluster = {
        "name": endpoints["cluster_name"],
        "namespaces": list(namespaces),
        "kinds": list(kinds),
    }
    machine = "arm64" if platform.machine() in {"arm64", "aarch64"} else "x86_64"
    return document | {
        "region": endpoints["region"],
        "runtime": {"architecture": machine},
        "state": {"retain": False},
        "drills": True,
        "submissions": {"manifestBuckets": buckets},
        "clusters": [
            cluster
            | ({"agent": {"image": agent}} if agent else {})
            | ({"cedana": cedana} if cedana else {})
        ],
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
