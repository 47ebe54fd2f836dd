"""EKS clusters by name: endpoint and CA from DescribeCluster, a signed STS URL as token."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.model import ServiceId
from botocore.signers import RequestSigner

from sluice.adapters.kubernetes_cluster import KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.session import Session
    from mypy_boto3_eks import EKSClient

TOKEN_SECONDS = 600  # the server honours 15 minutes
URL_EXPIRES_SECONDS = 60
CLUSTER_HEADER = "x-k8s-aws-id"


@dataclass
class EKSClusters:
    """Keeps one client per cluster; its token is renewed well before it ends."""

    eks: EKSClient
    session: Session
    region: str
    sts_endpoint: str
    _clusters: dict[str, KubernetesCluster] = field(default_factory=dict)

    def cluster(self, name: str) -> KubernetesCluster:
        if name not in self._clusters:
            described = self.eks.describe_cluster(name=name)["cluster"]
            ca = base64.b64decode(described["certificateAuthority"]["data"]).decode()
            self._clusters[name] = KubernetesCluster(
                described["endpoint"], ca, renewed(lambda: self.token(name))
            )
        return self._clusters[name]

    def token(self, cluster: str) -> str:
        """`k8s-aws-v1.` and a presigned GetCallerIdentity URL; pure computation, no call.

        Source: facts, EKS access §1. It is a credential: never log it.
        """
        credentials: Any = self.session.get_credentials()
        signer = RequestSigner(
            ServiceId("sts"),
            self.region,
            "sts",
            "v4",
            credentials,
            self.session.get_component("event_emitter"),
        )
        request = {
            "method": "GET",
            "url": f"{self.sts_endpoint}/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {CLUSTER_HEADER: cluster, "host": urlsplit(self.sts_endpoint).netloc},
            "context": {},
        }
        url = signer.generate_presigned_url(
            request, expires_in=URL_EXPIRES_SECONDS, operation_name=""
        )
        return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def renewed(make: Callable[[], str], seconds: float = TOKEN_SECONDS) -> Callable[[], str]:
    """A token that is made again once it is `seconds` old."""
    kept: list[tuple[float, str]] = []

    def token() -> str:
        now = time.monotonic()
        if not kept or now - kept[0][0] > seconds:
            kept[:] = [(now, make())]
        return kept[0][1]

    return token
