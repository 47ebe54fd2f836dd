"""Lets the functions into one existing EKS cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import yaml
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_s3_assets as assets
from constructs import Construct
from sluice.configuration import Cluster

from infra.cluster_manifest import cluster_manifest
from infra.function import SluiceFunction


class ClusterAccess(cdk.Stack):
    """One access entry a function, each with a group of its own, and what these groups may do.

    Access entries alone give no rights: an administrator of the cluster applies the manifest that
    the output `Apply` fetches, so that the stack itself needs no rights in Kubernetes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: Cluster,
        functions: Mapping[str, SluiceFunction],
        **options: Any,
    ) -> None:
        super().__init__(scope, construct_id, **options)
        for name, function in functions.items():
            if group := function.shape.cluster_group:
                eks.CfnAccessEntry(
                    self,
                    f"{name.title()}Access",
                    cluster_name=cluster.name,
                    principal_arn=function.role.role_arn,
                    type="STANDARD",
                    # Groups instead of access policies: those know neither nodes nor NodePools.
                    kubernetes_groups=[group],
                )
        manifest = self._manifest(cluster)
        cdk.CfnOutput(
            self,
            "Apply",
            description="To be run once by an administrator of the cluster",
            value=f"aws s3 cp {manifest.s3_object_url} - | kubectl apply -f -",
        )

    def _manifest(self, cluster: Cluster) -> assets.Asset:
        stage = cdk.Stage.of(self)
        if stage is None:
            raise ValueError("a stack belongs to an app")
        path = Path(stage.outdir, f"cluster-{cluster.name}.yaml")
        path.write_text(yaml.safe_dump_all(cluster_manifest(cluster.namespaces), sort_keys=False))
        return assets.Asset(self, "Manifest", path=str(path))
