"""Reads `sluice.yaml`, the one configuration file of CDK app, CLI and local stack."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

FILE_NAME = "sluice.yaml"


class ConfigurationError(ValueError):
    """The file cannot be used; `problems` holds one "field: what to change" each."""

    def __init__(self, source: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "\n".join([f"{source} needs a change:", *map("  {}".format, self.problems)])
        )


@dataclass(frozen=True, kw_only=True)
class WarmThroughput:
    """Read and write units per second that a table is ready for."""

    reads: int
    writes: int


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What the Lambdas run on."""

    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    architecture: str = "arm64"


@dataclass(frozen=True, kw_only=True)
class StateSettings:
    """How precious the tables and the bucket are."""

    retain: bool = True
    deletion_protection: bool = True
    warm_throughput: WarmThroughput | None = None


@dataclass(frozen=True, kw_only=True)
class ObservabilitySettings:
    """Logs, traces, and the SNS topics that alarms notify."""

    log_level: str = "INFO"
    log_retention_days: int = 30
    tracing: bool = False
    alarm_topics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Submissions:
    """IAM principals (ARNs) and organization that may send; empty: any of the account.

    `manifest_buckets` may hold the documents that a `manifestRef` names.
    """

    principals: tuple[str, ...] = ()
    organization: str | None = None
    manifest_buckets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Events:
    """Lifecycle events on the bus; those to `omit` stand in the timeline alone."""

    omit: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The subnets and security groups of a VPC, by id, in which the functions run."""

    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The node agent, by the digest of its image."""

    image: str


@dataclass(frozen=True, kw_only=True)
class CedanaSettings:
    """The secret (ARN) with Cedana's token, and whose pods are admitted: `NAMESPACE/ACCOUNT`."""

    token_secret: str
    service_account: str


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """An existing EKS cluster, the tenants' namespaces in it, and what its nodes have."""

    name: str
    namespaces: tuple[str, ...] = ("default",)
    kinds: tuple[str, ...] = ()
    agent: AgentSettings | None = None
    cedana: CedanaSettings | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One deployment of Sluice."""

    name: str = "sluice"
    region: str | None = None
    runtime: Runtime = field(default_factory=Runtime)
    state: StateSettings = field(default_factory=StateSettings)
    observability: ObservabilitySettings = field(default_factory=ObservabilitySettings)
    submissions: Submissions = field(default_factory=Submissions)
    events: Events = field(default_factory=Events)
    network: NetworkSettings | None = None
    clusters: tuple[ClusterSettings, ...] = ()
    drills: bool = False

    @property
    def parameter_prefix(self) -> str:
        """Folder of the SSM parameters that publish the names of the deployed parts."""
        return f"/{self.name}"


def load(path: Path | str = FILE_NAME) -> Configuration:
    """Read the configuration from the file; a missing or empty file means all defaults.

    Raises ConfigurationError when the file is no YAML or does not obey the published schema.
    """
    import yaml  # noqa: PLC0415 - only who reads the file pays for the parser

    path = Path(path)
    if not path.exists():
        return Configuration()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(str(path), [f"(file): correct the YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigurationError(str(path), ["(file): nested too deep; flatten it"]) from error
    return parse({} if document is None else document, source=str(path))


def parse(document: Any, *, source: str = FILE_NAME) -> Configuration:
    """Read a decoded document; raises ConfigurationError with every problem."""
    problems = _violations(document) or _contradictions(document)
    if problems:
        raise ConfigurationError(source, problems)
    state = _fields(document.get("state", {}))
    if warm := state.get("warm_throughput"):
        state["warm_throughput"] = WarmThroughput(**warm)
    # Nothing that is deleted with its stack can be protected against deletion.
    state.setdefault("deletion_protection", state.get("retain", True))
    return Configuration(
        **{name: document[name] for name in ("name", "region", "drills") if name in document},
        runtime=Runtime(**_fields(document.get("runtime", {}))),
        state=StateSettings(**state),
        observability=ObservabilitySettings(**_fields(document.get("observability", {}))),
        submissions=Submissions(**_fields(document.get("submissions", {}))),
        events=Events(**_fields(document.get("events", {}))),
        network=(
            NetworkSettings(**_fields(document["network"])) if "network" in document else None
        ),
        clusters=tuple(_cluster(each) for each in document.get("clusters", [])),
    )


def _cluster(document: Mapping[str, Any]) -> ClusterSettings:
    fields = _fields(document)
    if agent := fields.get("agent"):
        fields["agent"] = AgentSettings(**agent)
    if cedana := fields.get("cedana"):
        fields["cedana"] = CedanaSettings(**_fields(cedana))
    return ClusterSettings(**fields)


def schema() -> dict[str, Any]:
    """Return the published JSON Schema of `sluice.yaml`."""
    text = files("sluice.schemas").joinpath("config.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _violations(document: Any) -> list[str]:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - not needed by importers

    errors = Draft202012Validator(schema()).iter_errors(document)
    return [
        _advice(error) for error in sorted(errors, key=lambda error: list(map(str, error.path)))
    ]


def _advice(error: Any) -> str:
    """One schema violation as "field: what to change"."""
    place = ".".join(map(str, error.path)) or "(file)"
    if error.validator == "additionalProperties":
        known = sorted(error.schema["properties"])
        unknown = sorted(map(str, set(error.instance) - set(known)))
        return f"{place}: remove {', '.join(unknown)}; known here: {', '.join(known)}"
    if error.validator == "enum":
        return f"{place}: use one of {', '.join(map(str, error.validator_value))}"
    if error.validator == "pattern":
        return f"{place}: {error.instance!r} must match {error.validator_value}"
    if error.validator == "type":
        return f"{place}: must be of type {error.validator_value}, not {error.instance!r}"
    return f"{place}: {error.message}"


def _contradictions(document: Mapping[str, Any]) -> list[str]:
    state = document.get("state", {})
    problems = []
    if state.get("deletionProtection") and state.get("retain") is False:
        problems.append("state.deletionProtection: set it to false, or state.retain to true")
    names = Counter(cluster["name"] for cluster in document.get("clusters", []))
    problems += [
        f"clusters: name {name} only once" for name, count in sorted(names.items()) if count > 1
    ]
    return problems


def _fields(section: Mapping[str, Any]) -> dict[str, Any]:
    """JSON names as Python names, lists as tuples."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): (
            tuple(value) if isinstance(value, list) else value
        )
        for name, value in section.items()
    }
