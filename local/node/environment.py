"""What a container's environment holds: `env`, `envFrom`, the downward API, `$(VAR)`."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Sources = Mapping[tuple[str, str], Mapping[str, str] | None]
"""ConfigMaps and Secrets by (kind, name), decoded; None where there is no such object."""

LOOPBACK = "127.0.0.1"
_REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z0-9]+)\))")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_SUFFIX: dict[str | None, Decimal] = {
    None: Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{suffix + "i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


class ConfigMissingError(Exception):
    """A ConfigMap, Secret or key that the pod needs does not exist (yet)."""


class FieldUnknownError(Exception):
    """A downward API field that Kubernetes does not know for this use."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` where NAME is known; `$$` stands for one `$`, as in the API reference."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return variables.get(match[2], match[0])

    return _REFERENCE.sub(value, text)


def quantity(text: str) -> Decimal:
    """A resource quantity in its base unit (cores, bytes, count). Raises ValueError."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    return Decimal(match[1]) * _SUFFIX[match[2]]


def field(pod: dict[str, Any], path: str) -> str:
    """A downward API field of the pod. Raises FieldUnknownError."""
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _KEYED_FIELD.fullmatch(path):
        return str(metadata.get(match[1], {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries: dict[str, str] = metadata.get(path.removeprefix("metadata."), {})
        return "\n".join(f'{key}="{escaped(value)}"' for key, value in sorted(entries.items()))
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": LOOPBACK,
        "status.hostIPs": LOOPBACK,
        "status.podIP": LOOPBACK,
        "status.podIPs": LOOPBACK,
    }
    if path not in simple:
        raise FieldUnknownError(path)
    return str(simple[path])


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource(
    container: dict[str, Any], reference: dict[str, Any], allocatable: Mapping[str, str]
) -> str:
    """A resourceFieldRef's number, rounded up to whole divisors; a missing limit is the node's."""
    bound, _, name = reference["resource"].partition(".")
    resources = container.get("resources", {})
    found = resources.get(bound, {}).get(name)
    if found is None and bound == "limits":
        found = allocatable.get(name, "0")
    divisor = quantity(reference.get("divisor") or "1") or Decimal(1)
    return str(math.ceil(quantity(found or "0") / divisor))


def sources_of(container: dict[str, Any]) -> set[tuple[str, str]]:
    """The ConfigMaps and Secrets, as (kind, name), that the container's environment names."""
    needed = set()
    for entry in container.get("envFrom", []):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in entry:
                needed.add((kind, entry[key]["name"]))
    for variable in container.get("env", []):
        chosen = variable.get("valueFrom", {})
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if key in chosen:
                needed.add((kind, chosen[key]["name"]))
    return needed


def container_environment(
    pod: dict[str, Any],
    container: dict[str, Any],
    sources: Sources,
    allocatable: Mapping[str, str],
) -> dict[str, str]:
    """The variables that the manifest asks for, later ones able to use earlier ones.

    Raises ConfigMissingError for a ConfigMap, Secret or key that is absent and not optional.
    """
    variables: dict[str, str] = {}
    for entry in container.get("envFrom", []):
        kind, reference = (
            ("ConfigMap", entry["configMapRef"])
            if "configMapRef" in entry
            else ("Secret", entry["secretRef"])
        )
        data = sources.get((kind, reference["name"]))
        if data is None and not reference.get("optional"):
            raise ConfigMissingError(f"{kind} {reference['name']!r} not found")
        variables |= {entry.get("prefix", "") + key: value for key, value in (data or {}).items()}
    for variable in container.get("env", []):
        if "valueFrom" not in variable:
            variables[variable["name"]] = expand(variable.get("value", ""), variables)
            continue
        chosen = _chosen(pod, container, variable["valueFrom"], sources, allocatable)
        if chosen is not None:
            variables[variable["name"]] = chosen
    return variables


def _chosen(
    pod: dict[str, Any],
    container: dict[str, Any],
    origin: dict[str, Any],
    sources: Sources,
    allocatable: Mapping[str, str],
) -> str | None:
    if "fieldRef" in origin:
        return field(pod, origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        return resource(container, origin["resourceFieldRef"], allocatable)
    kind, reference = (
        ("ConfigMap", origin["configMapKeyRef"])
        if "configMapKeyRef" in origin
        else ("Secret", origin["secretKeyRef"])
    )
    value = (sources.get((kind, reference["name"])) or {}).get(reference["key"])
    if value is None and not reference.get("optional"):
        raise ConfigMissingError(f"{kind} {reference['name']!r} has no key {reference['key']!r}")
    return value
