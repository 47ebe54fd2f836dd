"""What the largest machine of a NodePool holds, and which requests none of them ever can. Pure.

One answer for four readers: submission and its dry run, `why`, `capacity` and `simulate`. It is
generous: a machine counts with all that it has, although Kubernetes keeps some for itself, and
where nothing is known of a pool everything fits.
Source: labels of karpenter.k8s.aws/v1 on instance types; DescribeInstanceTypes of EC2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from sluice.core.values.quantity import format_quantity

if TYPE_CHECKING:
    from sluice.core.config.model import ClusterQueue
    from sluice.core.lifecycle.record import PodSet

Document = Mapping[str, Any]

_TYPE: Final = "node.kubernetes.io/instance-type"
_LABEL: Final = "karpenter.k8s.aws/instance-"
_FAMILY, _CATEGORY = f"{_LABEL}family", f"{_LABEL}category"
_COUNTED: Final = frozenset({"cpu", "memory"})


@dataclass(frozen=True, slots=True)
class MachineSize:
    """An instance type: millicores, bytes, and devices by resource name."""

    type: str
    cpu: int
    memory: int
    devices: Mapping[str, int] = field(default_factory=dict)
    architecture: str = "amd64"

    def holds(self, requests: Mapping[str, int]) -> bool:
        """Whether an empty machine of this type could hold such a pod."""
        return all(amount <= self.has(name) for name, amount in requests.items() if counts(name))

    def has(self, resource: str) -> int:
        return {"cpu": self.cpu, "memory": self.memory}.get(resource, self.devices.get(resource, 0))

    def __str__(self) -> str:
        devices = "".join(f", {count} {name}" for name, count in sorted(self.devices.items()))
        memory = format_quantity("memory", self.memory)
        return f"{self.type} ({format_quantity('cpu', self.cpu)} cpu, {memory}{devices})"


class KnownPool(Protocol):
    """What of a NodePool's plan counts here."""

    @property
    def flavors(self) -> Sequence[str]: ...

    @property
    def largest(self) -> Sequence[MachineSize]:
        """The largest types that it may buy; none: nobody knows."""
        ...


def counts(resource: str) -> bool:
    """Whether a machine's size says how much of it there is; other resources are not EC2's."""
    return resource in _COUNTED or resource.endswith((".com/gpu", "/neuron", "/neuroncore"))


def read_machine(document: Document) -> MachineSize:
    """From DescribeInstanceTypes."""
    devices: dict[str, int] = {}
    for gpu in (document.get("GpuInfo") or {}).get("Gpus") or ():
        name = f"{gpu['Manufacturer'].lower()}.com/gpu"
        devices[name] = devices.get(name, 0) + int(gpu["Count"])
    neuron = (document.get("NeuronInfo") or {}).get("NeuronDevices") or ()
    if neuron:
        devices["aws.amazon.com/neuron"] = sum(int(each["Count"]) for each in neuron)
        cores = (int(e["Count"]) * int((e.get("CoreInfo") or {}).get("Count", 1)) for e in neuron)
        devices["aws.amazon.com/neuroncore"] = sum(cores)
    known = document["ProcessorInfo"]["SupportedArchitectures"]
    return MachineSize(
        type=str(document["InstanceType"]),
        cpu=1000 * int(document["VCpuInfo"]["DefaultVCpus"]),
        memory=int(document["MemoryInfo"]["SizeInMiB"]) << 20,
        devices=devices,
        architecture="arm64" if "arm64" in known else "amd64",
    )


def wanted_types(pool: Document) -> tuple[str, ...]:
    """Globs of the instance types that a NodePool may buy; `*` if nothing narrows them."""
    values = {
        each["key"]: tuple(each.get("values") or ())
        for each in requirements(pool)
        if each["operator"] == "In"
    }
    if exact := values.get(_TYPE):
        return tuple(sorted(exact))
    if families := values.get(_FAMILY):
        return tuple(sorted(f"{each}.*" for each in families))
    return tuple(sorted(f"{each}*" for each in values.get(_CATEGORY, ()))) or ("*",)


def requirements(pool: Document) -> Sequence[Document]:
    found: Sequence[Document] = pool["spec"]["template"]["spec"].get("requirements") or ()
    return found


def largest(pool: Document, machines: Iterable[MachineSize]) -> tuple[MachineSize, ...]:
    """Of the types that a NodePool may buy those of which none other has as much of everything."""
    rules = requirements(pool)
    bought = [one for one in machines if all(_meets(one, rule) for rule in rules)]
    ordered = sorted(bought, key=lambda one: (-one.cpu, -one.memory, one.type))
    kept: list[MachineSize] = []
    for one in ordered:
        if not any(_covers(other, one) for other in kept):
            kept.append(one)
    return tuple(kept)


def why_never(
    pod_sets: Sequence[PodSet],
    queue: ClusterQueue,
    plans: Mapping[str, Sequence[KnownPool]],
    offers: Mapping[str, Sequence[str]],
) -> str:
    """Which pod no machine of the queue's flavors can ever hold, and the largest; empty: none.

    `plans` of each cluster; `offers` maps a cluster to its flavors (empty: all).
    """
    for pod_set in pod_sets:
        names = [
            name
            for group in queue.resource_groups
            for name in (flavor.name for flavor in group.flavors)
            if not pod_set.flavors or name in pod_set.flavors
        ]
        known: list[MachineSize] = []
        for name in dict.fromkeys(names):
            sizes = _sizes_of(name, plans, offers)
            if sizes is None or any(size.holds(pod_set.requests) for size in sizes):
                break
            known += sizes
        else:
            if known:
                return _too_large(pod_set, known)
    return ""


def _sizes_of(
    flavor: str, plans: Mapping[str, Sequence[KnownPool]], offers: Mapping[str, Sequence[str]]
) -> list[MachineSize] | None:
    """The largest machines of a flavor on any cluster; None: nobody knows."""
    found: list[MachineSize] = []
    for cluster, offered in offers.items():
        if offered and flavor not in offered:
            continue
        serving = [plan for plan in plans.get(cluster, ()) if flavor in plan.flavors]
        if not serving or not all(plan.largest for plan in serving):
            return None
        found += [size for plan in serving for size in plan.largest]
    return found


def _too_large(pod_set: PodSet, known: Sequence[MachineSize]) -> str:
    asked = {name: n for name, n in pod_set.requests.items() if counts(name)}
    lacking = [name for name, n in asked.items() if max(size.has(name) for size in known) < n]
    shown = lacking or list(asked)
    text = ", ".join(f"{format_quantity(name, asked[name])} {name}" for name in shown)
    best = max(known, key=lambda size: [size.has(name) for name in shown])
    together = "" if lacking else " together"
    return (
        f"a pod of {pod_set.name} asks for {text}{together}; the largest machine that its queue"
        f" can get is {best}"
    )


def _covers(other: MachineSize, one: MachineSize) -> bool:
    names = {"cpu", "memory", *one.devices}
    return all(other.has(name) >= one.has(name) for name in names)


def _meets(one: MachineSize, rule: Document) -> bool:
    """Whether a type meets a requirement; of labels that are not known here it does."""
    labels = _labels(one)
    if rule["key"] not in labels:
        return True
    value, values = labels[rule["key"]], [str(each) for each in rule.get("values") or ()]
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Gt" | "Lt" if values and values[0].isdigit() and value.isdigit():
            more = int(value) - int(values[0])
            return more > 0 if rule["operator"] == "Gt" else more < 0
        case "DoesNotExist":
            return not value
    return True


def _labels(one: MachineSize) -> dict[str, str]:
    family, _, size = one.type.partition(".")
    category = "".join(letter for letter in family[:2] if letter.isalpha())
    generation = next((letter for letter in family if letter.isdigit()), "")
    gpus = sum(n for name, n in one.devices.items() if name.endswith("/gpu"))
    found = {
        _TYPE: one.type,
        _FAMILY: family,
        f"{_LABEL}size": size,
        f"{_LABEL}cpu": str(one.cpu // 1000),
        f"{_LABEL}memory": str(one.memory >> 20),
        f"{_LABEL}gpu-count": str(gpus) if gpus else "",
        "kubernetes.io/arch": one.architecture,
    }
    if len(category) == 1:  # longer ones, such as inf and trn, are not read from a name
        found[_CATEGORY] = category
        found[f"{_LABEL}generation"] = generation
    return found
