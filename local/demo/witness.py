"""What the real API server, EC2 and S3 say, asked directly rather than through Sluice."""

import json
import urllib.request
from typing import Any

import boto3
from kubernetes import client as kubernetes
from kubernetes import config as kubernetes_config

from local.endpoints import Endpoints

BUCKET, NAMESPACE = "team-blue-data", "team-blue"


class Witness:
    def __init__(self, endpoints: Endpoints) -> None:
        kubernetes_config.load_kube_config(endpoints.kubeconfig)
        self.core, self.ec2 = kubernetes.CoreV1Api(), endpoints.ec2
        self.s3: Any = boto3.client(
            "s3",
            endpoint_url=endpoints.aws,
            region_name=endpoints.region,
            aws_access_key_id=endpoints.access_key_id,
            aws_secret_access_key=endpoints.secret_access_key,
        )

    def pods(self, workload: str) -> list[Any]:
        selector = f"sluice.dev/workload={workload}"
        found: list[Any] = self.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
        return found

    def nodes(self) -> set[str]:
        return {node.metadata.name for node in self.core.list_node().items}

    def instance(self, node: str) -> str:
        """The EC2 instance behind a node."""
        return str(self.core.read_node(node).spec.provider_id).rpartition("/")[2]

    def interrupt(self, instance: str) -> str:
        """Have EC2 warn of the end of an instance; when that will be."""
        warned = json.dumps({"instanceId": instance}).encode()
        request = urllib.request.Request(
            f"{self.ec2}/_market/interrupt", warned, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as market:
            return str(json.load(market)["reclaimTime"])

    def result(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        )
        return found
