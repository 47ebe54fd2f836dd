"""A template of the Fault Injection Service that reclaims one spot instance for real.

Its target is whatever bears the tag that `sluice drill` gives one instance for the moment.
"""

import aws_cdk as cdk
from aws_cdk import aws_fis as fis
from aws_cdk import aws_iam as iam
from constructs import Construct

TAG = "sluice.dev/drill"
_TARGET = "machine"


class Drills(Construct):
    """`template.attr_id` starts it."""

    def __init__(self, scope: Construct, construct_id: str, *, name: str) -> None:
        super().__init__(scope, construct_id)
        stack = cdk.Stack.of(self)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "fis.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            ),
            description="Takes away spot instances that are tagged for a drill",
        )
        interrupt = iam.PolicyStatement(
            actions=["ec2:SendSpotInstanceInterruptions"],
            # Not the stack's own Region: a finding that names one could not be acknowledged once.
            resources=[
                f"arn:{cdk.Aws.PARTITION}:ec2:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:instance/*"
            ],
            conditions={"StringEquals": {f"ec2:ResourceTag/{TAG}": name}},
        )
        find = iam.PolicyStatement(actions=["ec2:DescribeInstances"], resources=["*"])
        iam.Policy(self, "Interrupt", roles=[role], statements=[interrupt, find])
        self.template = fis.CfnExperimentTemplate(
            self,
            "Template",
            description=f"{name}: the machine that `sluice drill` has tagged is reclaimed",
            role_arn=role.role_arn,
            stop_conditions=[
                fis.CfnExperimentTemplate.ExperimentTemplateStopConditionProperty(source="none")
            ],
            targets={
                _TARGET: fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty(
                    resource_type="aws:ec2:spot-instance",
                    selection_mode="COUNT(1)",
                    resource_tags={TAG: name},
                    filters=[
                        fis.CfnExperimentTemplate.ExperimentTemplateTargetFilterProperty(
                            path="State.Name", values=["running"]
                        )
                    ],
                )
            },
            actions={
                "interrupt": fis.CfnExperimentTemplate.ExperimentTemplateActionProperty(
                    action_id="aws:ec2:send-spot-instance-interruptions",
                    # The warning comes two minutes before the end, so here it comes at once.
                    parameters={"durationBeforeInterruption": "PT2M"},
                    targets={"SpotInstances": _TARGET},
                )
            },
            tags={"Name": f"{name}-drill"},
        )
