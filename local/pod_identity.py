"""EKS Pod Identity: gives pods the credentials of the role that their service account stands for.

    python -m local.pod_identity --port 7777 --aws URL --kubeconfig FILE --cluster batch-1

On EKS an agent answers at a link-local address of every node; the nodes of this machine share one
on loopback. A pod shows the token that was projected for it. The API server says whose it is, EKS
which role that account has, the role's own trust policy whether it may be had, and STS makes the
session. Source: the documentation of EKS Pod Identity and of the AWS SDKs' container credentials.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from local.json_answers import JsonHandler
from local.node.api import ApiError, KubernetesApi

Json = dict[str, Any]
AUDIENCE = PRINCIPAL = "pods.eks.amazonaws.com"
PATH = "/v1/credentials"
NEEDED = {"sts:AssumeRole", "sts:TagSession"}
ACCOUNT = "system:serviceaccount:"


class RefusedError(Exception):
    """No credentials for this token; the message says why."""


@dataclass(frozen=True)
class PodIdentity:
    """The accounts of one cluster, against one embedded AWS."""

    cluster: str
    api: KubernetesApi
    role_of: Callable[[str, str], str | None]  # the ARN, of namespace and account
    iam: Any
    sts: Any

    def credentials(self, token: str) -> Json:
        """What an SDK reads from its container's credentials. Raises RefusedError."""
        namespace, account, pod = self._holder(token)
        arn = self.role_of(namespace, account)
        if arn is None:
            raise RefusedError(f"{namespace}/{account} is associated with no role")
        tags = {
            "eks-cluster-name": self.cluster,
            "kubernetes-namespace": namespace,
            "kubernetes-service-account": account,
            "kubernetes-pod-name": pod,
        }
        role = self.iam.get_role(RoleName=arn.rpartition("/")[2])["Role"]
        if not trusts(role["AssumeRolePolicyDocument"], tags):
            raise RefusedError(f"{arn} does not trust {PRINCIPAL} for {namespace}/{account}")
        session = self.sts.assume_role(
            RoleArn=arn,
            RoleSessionName=f"eks-{self.cluster}-{account}"[:64],
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )["Credentials"]
        return {
            "AccessKeyId": session["AccessKeyId"],
            "SecretAccessKey": session["SecretAccessKey"],
            "Token": session["SessionToken"],
            "AccountId": arn.split(":")[4],
            "Expiration": session["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _holder(self, token: str) -> tuple[str, str, str]:
        """Namespace, account and pod of a token that was made for Pod Identity."""
        review = self.api.create(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token, "audiences": [AUDIENCE]},
            },
        )
        status = review["status"]
        name = status.get("user", {}).get("username", "")
        if not status.get("authenticated") or not name.startswith(ACCOUNT):
            raise RefusedError(f"no token of a service account: {status.get('error', name)}")
        namespace, _, account = name.removeprefix(ACCOUNT).partition(":")
        (pod,) = status["user"]["extra"].get("authentication.kubernetes.io/pod-name", [""])
        return namespace, account, pod


@dataclass(frozen=True)
class Associations:
    """What the cluster's associations say now."""

    eks: Any
    cluster: str

    def __call__(self, namespace: str, account: str) -> str | None:
        found = self.eks.list_pod_identity_associations(
            clusterName=self.cluster, namespace=namespace, serviceAccount=account
        )["associations"]
        for each in found:
            answer = self.eks.describe_pod_identity_association(
                clusterName=self.cluster, associationId=each["associationId"]
            )
            return str(answer["association"]["roleArn"])
        return None


def trusts(policy: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Whether a trust policy lets EKS tag and start a session for a pod with these tags."""
    given = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    allowed: set[str] = set()
    for statement in policy["Statement"]:
        actions = statement["Action"]
        wanted = statement.get("Condition", {}).get("StringEquals", {})
        if (
            statement["Effect"] == "Allow"
            and statement["Principal"] == {"Service": PRINCIPAL}
            and all(given.get(key) == value for key, value in wanted.items())
        ):
            allowed |= {actions} if isinstance(actions, str) else set(actions)
    return allowed >= NEEDED


def handler(identity: PodIdentity) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_GET(self) -> None:
            if self.path != PATH:
                return self.answer(200 if self.path == "/" else 404, {})
            try:
                found = identity.credentials(self.headers.get("Authorization", ""))
            except (RefusedError, ApiError, BotoCoreError, ClientError) as error:
                print(f"refused: {error}", file=sys.stderr, flush=True)
                return self.answer(400, {"message": str(error)})
            return self.answer(200, found)

    return Handler


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--aws", required=True, help="MiniStack's address")
    options.add_argument("--kubeconfig", type=Path, required=True)
    options.add_argument("--cluster", required=True)
    chosen = options.parse_args()
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        sys.exit("Pod Identity needs the embedded AWS's keys in its environment.")
    identity = PodIdentity(
        chosen.cluster,
        KubernetesApi(chosen.kubeconfig),
        Associations(boto3.client("eks", endpoint_url=chosen.aws), chosen.cluster),
        boto3.client("iam", endpoint_url=chosen.aws),
        boto3.client("sts", endpoint_url=chosen.aws),
    )
    ThreadingHTTPServer(("127.0.0.1", chosen.port), handler(identity)).serve_forever()


if __name__ == "__main__":
    main()
