"""What a tenant may submit, as its Tenant document grants it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.document import DocumentError, Fields, Flaw

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NODE_LABELS: Final = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
TAINTS: Final = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron")
"""They keep from machines with devices what needs none."""
ECR: Final = "*.dkr.ecr.*.amazonaws.com"
_UNBOUNDED: Final = 2**31
ROLE_ID: Final = re.compile(r"AROA[A-Z0-9]+", re.ASCII)
PERSON: Final = re.compile(r"(?!A(?:ROA|IDA)[A-Z0-9]*$)(?!\d{12}$)[\w+=,.@-]{2,64}", re.ASCII)
"""A session's name as STS takes it, that is not the id of another principal or account."""


class PodSecurity(StrEnum):
    """The Pod Security Standards, narrowest first."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"
    PRIVILEGED = "privileged"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who somebody is and what their manifests may hold; the defaults grant little.

    `images` are `REGISTRY/REPOSITORY` globs; None allows repositories of ECR below the names of the
    tenant and its namespaces, and no others: an account holds those of other teams, and the memory
    that checkpoints saved. `secrets`, `config_maps` and `claims` are globs of
    names that pods may refer to; `environment` names variables that are reserved otherwise.
    `buckets` are `BUCKET/PREFIX` globs; None leaves volumes to the pods' own IAM role, and then
    no manifest is fetched from S3, since Sluice's role would do that. `checks` are the admission
    checks that the tenant answers, whosever workload they are about. `annotations` are domains
    whose annotations its jobs may carry. `federated_principals` are those of `principals`, by
    their `AROA…` ids, whose sessions an identity provider names: there each person is a user.
    `node_labels` and `taints` are globs of keys that its
    manifests may name although no flavor of their queue has them. `default_queue` takes what names
    no queue; empty: that is refused.
    """

    name: str
    principals: tuple[str, ...] = ()
    federated_principals: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    event_sources: tuple[str, ...] = ()
    admin: bool = False
    max_pending: int = 10_000
    pod_security: PodSecurity = PodSecurity.RESTRICTED
    images: tuple[str, ...] | None = None
    require_digest: bool = True
    require_limits: bool = False
    max_pods: int = 1000
    max_gpus: int = 64
    max_runtime_seconds: int = 0  # 0: no bound
    service_account: str = ""
    run_as_user: int = 0  # 0: the image's own user
    secrets: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    buckets: tuple[str, ...] | None = None
    checks: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = NODE_LABELS
    taints: tuple[str, ...] = TAINTS
    default_queue: str = ""

    @property
    def allowed_images(self) -> tuple[str, ...]:
        """Globs of the repositories whose images it may run."""
        if self.images is not None:
            return self.images
        return tuple(f"{ECR}/{name}/*" for name in dict.fromkeys((self.name, *self.namespaces)))

    @property
    def home(self) -> str:
        """The namespace of submissions that name none."""
        return self.namespaces[0] if self.namespaces else ""

    def may_mount(self, bucket: str, prefix: str) -> bool:
        """Whether a volume may show a prefix of a bucket."""
        return self.buckets is None or matches(f"{bucket}/{prefix}", self.buckets)

    def may_fetch(self, bucket: str, object_key: str) -> bool:
        """Whether Sluice may read a referenced manifest for the tenant."""
        return self.buckets is not None and matches(f"{bucket}/{object_key}", self.buckets)


def unbounded(namespace: str) -> Tenant:
    """A tenant of one namespace whom nothing is refused that any Tenant could be granted."""
    return Tenant(
        "anybody",
        namespaces=(namespace,),
        pod_security=PodSecurity.PRIVILEGED,
        images=("*",),
        require_digest=False,
        max_pods=_UNBOUNDED,
        max_gpus=_UNBOUNDED,
        secrets=("*",),
        config_maps=("*",),
        claims=("*",),
        node_labels=("*",),
        taints=("*",),
    )


def user_of(identity: str, federated: Collection[str]) -> str:
    """The user behind an identity of AWS, as `AROA…:session`, `AIDA…` or an account id.

    Whoever may assume a role chooses the name of the session, so it counts only for `federated`
    roles, into which an identity provider alone signs people in. For all others the user is what
    the caller cannot choose. A person whose name is like another principal's id is not that one.
    """
    principal, _, session = identity.partition(":")
    if principal in federated and PERSON.fullmatch(session):
        return session
    return principal


def matches(text: str, globs: tuple[str, ...]) -> bool:
    """Whether a text matches one of the shell patterns."""
    return any(fnmatchcase(text, glob) for glob in globs)


def parse(document: Mapping[str, Any]) -> Tenant:
    """The Tenant of a `sluice.dev/v1` document; raises DocumentError with every flaw."""
    flaws: list[Flaw] = []
    top = Fields(document, "", flaws)
    top.ignore("apiVersion", "kind", "status")
    metadata, spec = top.map("metadata", required=True), top.map("spec", required=True)
    metadata.ignore("labels", "annotations", "namespace")
    default = Tenant("")
    tenant = Tenant(
        name=metadata.name("name", required=True),
        principals=spec.texts("principals"),
        federated_principals=spec.texts("federatedPrincipals"),
        namespaces=spec.texts("namespaces", required=True),
        event_sources=spec.texts("eventSources"),
        admin=spec.boolean("admin", default=default.admin),
        max_pending=spec.integer("maxPending", default.max_pending, minimum=0),
        pod_security=spec.choice("podSecurity", PodSecurity, default.pod_security),
        images=spec.texts("images") if spec.has("images") else None,
        require_digest=spec.boolean("requireDigest", default=default.require_digest),
        require_limits=spec.boolean("requireLimits", default=default.require_limits),
        max_pods=spec.integer("maxPods", default.max_pods, minimum=1),
        max_gpus=spec.integer("maxGpus", default.max_gpus, minimum=0),
        max_runtime_seconds=(spec.duration("maxRuntime", 0) or 0) // 1000,
        service_account=spec.name("serviceAccountName"),
        run_as_user=spec.integer("runAsUser", default.run_as_user, minimum=0),
        secrets=spec.texts("secrets"),
        config_maps=spec.texts("configMaps"),
        claims=spec.texts("claims"),
        environment=spec.texts("environment"),
        buckets=spec.texts("buckets") if spec.has("buckets") else None,
        checks=spec.texts("checks"),
        annotations=spec.texts("annotations"),
        node_labels=spec.texts("nodeLabels") if spec.has("nodeLabels") else default.node_labels,
        taints=spec.texts("taints") if spec.has("taints") else default.taints,
        default_queue=spec.name("defaultQueue"),
    )
    for number, role in enumerate(tenant.federated_principals):
        if not ROLE_ID.fullmatch(role) or role not in tenant.principals:
            what = "must be the id (AROA…) of a role that `principals` lists too"
            flaws.append(Flaw("", f"spec.federatedPrincipals[{number}]", what))
    for fields in (top, metadata, spec):
        fields.close()
    if flaws:
        raise DocumentError(flaws)
    return tenant
