"""Finds the deployment to use, and the source of each setting.

In order: flags, `SLUICE_…` and `AWS_…` variables, the embedded stack of this clone if it is up,
`sluice.yaml`, and the parameters that the stacks publish in SSM under `/<name>/`. A profile
(`--profile`, `SLUICE_PROFILE`) means an AWS account, never the embedded stack.
"""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sluice.client.errors import SluiceClientError
from sluice.configuration import Configuration, ConfigurationError, load

CONFIGURATION = "sluice.yaml"
LOCAL_FOLDER = ".local"
REACH_SECONDS = 0.5


@dataclass(frozen=True)
class Setting:
    """One value and where it comes from."""

    value: str = ""
    source: str = "not set"


@dataclass(frozen=True)
class Keys:
    """Credentials of the embedded stack; an account's come from the boto3 chain instead."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class ClientSettings:
    """The deployment in use.

    `published` holds names that are known without SSM. `silent_stack` is the folder of an
    embedded stack that does not answer.
    """

    name: Setting
    region: Setting
    profile: Setting
    endpoint_url: Setting
    published: Mapping[str, Setting]
    clusters: tuple[str, ...] = ()
    keys: Keys | None = None
    silent_stack: str = ""


# What the stacks publish as `/<name>/<parameter>` and commands use, with the variable that
# overrides it.
PUBLISHED = {
    "api": "SLUICE_API_URL",
    "queues/submissions": "SLUICE_SUBMISSIONS_QUEUE_URL",
    "bus": "SLUICE_BUS_NAME",
}


def discover(
    *,
    profile: str | None = None,
    api_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ClientSettings:
    """Reads all settings that need no call to AWS. Raises SluiceClientError."""
    environment = os.environ if environment is None else environment
    folder = folder or Path.cwd()
    path = Path(environment.get("SLUICE_CONFIG") or folder / CONFIGURATION)
    configuration = _configuration(path)
    source = str(path) if path.exists() else "default"
    chosen = (
        _from(environment, "SLUICE_PROFILE")
        if profile is None
        else Setting(profile, "flag --profile")
    )
    elsewhere = chosen.value or environment.get("AWS_ENDPOINT_URL")
    local, silent = ({}, "") if elsewhere else _embedded_stack(environment, folder)
    origin = f"embedded stack in {local.get('folder')}"

    published = {}
    for parameter, variable in PUBLISHED.items():
        if variable in environment:
            published[parameter] = _from(environment, variable)
        elif parameter in local:
            published[parameter] = Setting(local[parameter], origin)
    if api_url:
        published["api"] = Setting(api_url, "flag --api-url")

    return ClientSettings(
        name=Setting(configuration.name, source),
        region=Setting(local["region"], origin) if local else _region(environment, configuration),
        profile=chosen,
        endpoint_url=Setting(local["aws"], origin)
        if local
        else _from(environment, "AWS_ENDPOINT_URL"),
        published=published,
        clusters=tuple(cluster.name for cluster in configuration.clusters),
        keys=Keys(local["access_key_id"], local["secret_access_key"]) if local else None,
        silent_stack=silent,
    )


def _from(environment: Mapping[str, str], variable: str) -> Setting:
    if value := environment.get(variable):
        return Setting(value, f"environment variable {variable}")
    return Setting()


def _configuration(path: Path) -> Configuration:
    try:
        return load(path)
    except ConfigurationError as error:
        raise SluiceClientError(
            str(error), hint="`sluice schema config` prints what is allowed"
        ) from error


def _region(environment: Mapping[str, str], configuration: Configuration) -> Setting:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if variable in environment:
            return _from(environment, variable)
    if configuration.region:
        return Setting(configuration.region, CONFIGURATION)
    return Setting(source="the AWS configuration")


def _embedded_stack(environment: Mapping[str, str], folder: Path) -> tuple[dict[str, str], str]:
    """The addresses of the embedded stack if it answers; otherwise its folder."""
    silent = ""
    if state := environment.get("SLUICE_STATE"):
        candidates = [Path(state)]
    else:
        candidates = [parent / LOCAL_FOLDER for parent in (folder, *folder.parents)]
    for candidate in candidates:
        try:
            endpoints = json.loads((candidate / "endpoints.json").read_text())
        except (OSError, ValueError):
            continue
        if _answers(endpoints["aws"]):
            return {**_outputs(candidate), **endpoints, "folder": str(candidate)}, ""
        silent = silent or str(candidate)
    return {}, silent


def _outputs(folder: Path) -> dict[str, str]:
    """Names of the deployed parts as `sluice local up` wrote them, if it did."""
    try:
        outputs: dict[str, str] = json.loads((folder / "outputs.json").read_text())
    except (OSError, ValueError):
        return {}
    return {key: outputs[key] for key in PUBLISHED if key in outputs}


def _answers(endpoint: str) -> bool:
    """Whether something listens there. The files may be left over from a crash."""
    address = urlsplit(endpoint)
    try:
        with socket.create_connection((address.hostname, address.port), REACH_SECONDS):
            return True
    except OSError:
        return False
