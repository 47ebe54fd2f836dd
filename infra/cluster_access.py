"""Lets the functions into one existing EKS cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import yaml
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_s3_assets as assets
from constructs import Construct
from sluice.configuration import ClusterSettings, Configuration

from infra.cluster_manifest import cluster_manifest
from infra.control import ControlStack
from infra.node_agent import NodeAgent
from infra.state import StateStack

_REMOVERS = ("act", "observe")  # they take checkpoints off the list


class ClusterAccessStack(cdk.Stack):
    """One access entry a function, each with a group of its own, and what these groups may do.

    Access entries alone give no rights: an administrator of the cluster applies the manifest that
    the output `Apply` fetches, so that the stack itself needs no rights in Kubernetes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        cluster: ClusterSettings,
        state: StateStack,
        control: ControlStack,
        **options: Any,
    ) -> None:
        super().__init__(scope, construct_id, **options)
        functions = control.functions
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
        filled: dict[str, str] = {}
        if cluster.agent is not None:
            filled = {
                "IMAGE": cluster.agent.image,
                "DEPLOYMENT": configuration.name,
                "CLUSTER": cluster.name,
            }
            NodeAgent(
                self,
                "Agent",
                cluster=cluster.name,
                parameter_prefix=configuration.parameter_prefix,
                retain=configuration.state.retain,
                bucket=state.bucket,
                notices=control.queues.main["notices"],
                removers={n: f for n, f in functions.items() if n in _REMOVERS},
            )
        manifest = self._manifest(cluster, filled)
        cdk.CfnOutput(
            self,
            "Apply",
            description="To be run once by an administrator of the cluster",
            value=f"aws s3 cp {manifest.s3_object_url} - | kubectl apply -f -",
        )

    def _manifest(self, cluster: ClusterSettings, agent: Mapping[str, str]) -> assets.Asset:
        stage = cdk.Stage.of(self)
        if stage is None:
            raise ValueError("a stack belongs to an app")
        path = Path(stage.outdir, f"cluster-{cluster.name}.yaml")
        cedana = cluster.cedana.service_account if cluster.cedana else ""
        objects = cluster_manifest(cluster.namespaces, agent, cedana, cluster.kinds)
        path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
        return assets.Asset(self, "Manifest", path=str(path))
