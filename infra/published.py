"""Publishes generated names: SSM parameters for programs, stack outputs for people."""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_ssm as ssm
from constructs import Construct


class Published(Construct):
    """Writes each value to the parameter `<prefix>/<key>` and to an output.

    The key `tables/workloads` becomes the output `TablesWorkloads`.
    """

    def __init__(self, scope: Construct, *, prefix: str, values: Mapping[str, str]) -> None:
        super().__init__(scope, "Published")
        for key, value in values.items():
            name = "".join(word.title() for word in key.replace("-", "/").split("/"))
            ssm.StringParameter(self, name, parameter_name=f"{prefix}/{key}", string_value=value)
            cdk.CfnOutput(self, f"{name}Output", value=value).override_logical_id(name)
