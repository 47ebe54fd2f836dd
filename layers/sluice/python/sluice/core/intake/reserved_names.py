"""Labels, annotations and environment variables that only Sluice or the platform may set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.intake.workload_options import ANNOTATIONS
from sluice.core.jobs.pod_sets import MIN_PARALLELISM

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE_LABELS: Final = ("sluice.dev/queue-name", "kueue.x-k8s.io/queue-name")
PRIORITY_LABELS: Final = ("sluice.dev/priority", "kueue.x-k8s.io/priority-class")

# What submitters may write under a reserved prefix; it is read, not passed on.
READ: Final = frozenset(
    {
        *QUEUE_LABELS,
        *PRIORITY_LABELS,
        *ANNOTATIONS,
        *MIN_PARALLELISM,
        "sluice.dev/idempotency-key",
    }
)
# What other tools leave in exported manifests, and what Sluice writes itself; left out as well.
_DROPPED: Final = frozenset(
    {
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "batch.kubernetes.io/job-tracking",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "karpenter.sh/do-not-disrupt",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
_HARMLESS: Final = ("app.kubernetes.io/", "kubectl.kubernetes.io/default-container")
_DOMAINS: Final = (
    "amazonaws.com",
    "criu.org",
    "istio.io",
    "k8s.aws",
    "k8s.io",
    "karpenter.sh",
    "kubernetes.io",
    "kyverno.io",
    "linkerd.io",
    "nvidia.com",
    "sluice.dev",
    "vault.hashicorp.com",
    "volcano.sh",
    "x-k8s.io",
    *(domain for driver in DRIVERS.values() for domain in driver.domains),
)
_KEY: Final = re.compile(
    r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)

_SAFE_AWS: Final = frozenset(
    {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"}
)
# Redirect credentials or endpoints, or preload code.
_PREFIXES: Final = (
    "AWS_", "SLUICE_", "LD_", "DYLD_", "KUBERNETES_", "BOTO_",
    *(prefix for driver in DRIVERS.values() for prefix in driver.variables),
)  # fmt: skip
_VARIABLES: Final = frozenset(
    {
        "ALL_PROXY",
        "BASH_ENV",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "NODE_OPTIONS",
        "PERL5LIB",
        "PERL5OPT",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "REQUESTS_CA_BUNDLE",
        "RUBYOPT",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "_JAVA_OPTIONS",
    }
)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}", re.ASCII)


def label_refusal(key: str, value: str) -> str | None:
    """Why a submitter may not set a label, with what to change."""
    if _LABEL_VALUE.fullmatch(value) is None:
        return "is not a label value: at most 63 of A-Z, a-z, 0-9, '-', '_', '.'"
    return _key_refusal(key)


def annotation_refusal(key: str, domains: Sequence[str] = ()) -> str | None:
    """Why a submitter may not set an annotation.

    Runtimes, networks and injectors obey annotations of their own domains, and new ones come; so
    only those without a domain, those that Sluice reads or drops, and `domains` are allowed.
    """
    refusal = _key_refusal(key)
    domain = key.partition("/")[0] if "/" in key else ""
    if refusal or not domain or key in READ or key in _DROPPED or key.startswith(_HARMLESS):
        return refusal
    if any(domain == one or domain.endswith(f".{one}") for one in domains):
        return None
    return f"the domain {domain} is not among the tenant's `annotations`; remove it, or ask for it"


def _key_refusal(key: str) -> str | None:
    if _KEY.fullmatch(key) is None:
        return "is not a valid key; write NAME or DOMAIN/NAME in plain letters, digits, '-', '.'"
    if key in READ or key in _DROPPED or key.startswith(_HARMLESS):
        return None
    domain = key.partition("/")[0] if "/" in key else ""
    if any(domain == one or domain.endswith(f".{one}") for one in _DOMAINS):
        return f"the prefix {domain} is reserved for the platform; remove it"
    return None


def passed_on(key: str) -> bool:
    """Whether a label or annotation of a submitter reaches the cluster."""
    return key not in READ and key not in _DROPPED


def variable_refusal(name: str, granted: tuple[str, ...]) -> str | None:
    """Why a submitter may not set an environment variable, with what to change."""
    if _VARIABLE.fullmatch(name) is None:
        return "is not the name of a variable; use letters, digits and '_'"
    upper = name.upper()
    if name in granted or upper in _SAFE_AWS:
        return None
    if upper in _VARIABLES or upper.startswith(_PREFIXES):
        return f"{name} is reserved: it redirects credentials, endpoints or code; remove it"
    return None
