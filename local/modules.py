"""What the embedded cluster is built from: Go modules, their versions and their programs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

KUBERNETES, ETCD, KARPENTER, JOBSET = "v1.36.3", "v3.6.8", "v1.14.0", "v0.10.1"
TRAINING_OPERATOR = "v1.9.3"
KARPENTER_MODULE = "github.com/aws/karpenter-provider-aws"
TRAINING_OPERATOR_MODULE = "github.com/kubeflow/training-operator"


@dataclass(frozen=True)
class Change:
    """Texts to put in place of others, in one file of a dependency, before compiling."""

    module: str
    version: str
    file: str
    texts: Mapping[str, str]  # old text -> new text


@dataclass(frozen=True)
class Module:
    path: str
    version: str
    programs: dict[str, str]  # name -> package of its main function
    change: Change | None = None
    label: str = ""  # tells programs with the change from those without
    objects: tuple[str, ...] = ()  # patterns of files for the API server, see `definitions`


# Karpenter has no setting for the address of its metrics and health, and takes all interfaces.
LOOPBACK_ONLY = Change(
    "sigs.k8s.io/karpenter", KARPENTER, "pkg/operator/operator.go", {'":%d"': '"127.0.0.1:%d"'}
)
# It has no setting for the address of its webhooks either, and makes their certificate itself, in a
# folder of /tmp that a kubelet would mount. Here the certificate lies in a folder of the stack.
GIVEN_CERTIFICATE = Change(
    TRAINING_OPERATOR_MODULE,
    TRAINING_OPERATOR,
    "cmd/training-operator.v1/main.go",
    {
        "Port: webhookServerPort,": (
            'Host: "127.0.0.1", Port: webhookServerPort, CertDir: os.Getenv("WEBHOOK_CERTIFICATE"),'
        ),
        "defer close(certsReady)": "close(certsReady)",
        "cert.ManageCerts(mgr, certGenerationConfig, certsReady)": (
            "func(cert.Config) error { return nil }(certGenerationConfig)"
        ),
    },
)

MODULES = (
    Module("go.etcd.io/etcd/server/v3", ETCD, {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module(
        "k8s.io/kubernetes",
        KUBERNETES,
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
        },
    ),
    Module(
        KARPENTER_MODULE,
        KARPENTER,
        {"karpenter": f"{KARPENTER_MODULE}/cmd/controller"},
        change=LOOPBACK_ONLY,
        label="-loopback",
        objects=("pkg/apis/crds/*.yaml",),
    ),
    Module(
        "sigs.k8s.io/jobset",
        JOBSET,
        {"jobset": "sigs.k8s.io/jobset"},
        objects=("config/components/crd/bases/*.yaml", "config/components/rbac/role.yaml"),
    ),
    Module(
        TRAINING_OPERATOR_MODULE,
        TRAINING_OPERATOR,
        {"training-operator": f"{TRAINING_OPERATOR_MODULE}/cmd/training-operator.v1"},
        change=GIVEN_CERTIFICATE,
        label="-loopback",
        objects=("manifests/base/crds/kubeflow.org_[jptx]*.yaml", "manifests/base/rbac/role.yaml"),
    ),
)
ADD_ONS = ("training-operator",)  # built where a stack asks for them
VERSIONS = {name: module.version + module.label for module in MODULES for name in module.programs}
WITH_OBJECTS = {name: m.version for m in MODULES if m.objects for name in m.programs}
CONTROL_PLANE = tuple(name for name in VERSIONS if name not in {"kubelet", *ADD_ONS})


def binary(cache: Path, name: str) -> Path:
    return cache / "bin" / f"{name}-{VERSIONS[name]}"


def definitions(cache: Path, name: str) -> Path:
    """The folder of what a program's own release has the API server know."""
    return cache / f"crds-{name}-{WITH_OBJECTS[name]}"


def missing(cache: Path, names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if not binary(cache, name).exists()
        or (name in WITH_OBJECTS and not definitions(cache, name).exists())
    ]
