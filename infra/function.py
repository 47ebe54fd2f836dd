"""One Lambda with a role and a log group of its own."""

from collections.abc import Mapping, Sequence
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct
from sluice.configuration import Configuration, NetworkSettings
from sluice.environment import LOG_LEVEL, METRICS_NAMESPACE, SERVICE_NAME
from sluice.metrics import NAMESPACE

from infra.functions import FunctionShape

_ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "x86_64": lambda_.Architecture.X86_64}
_INTERFACE_ACTIONS = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]
_RETENTION_NAMES = {1: "ONE_DAY", 3: "THREE_DAYS", 5: "FIVE_DAYS", 7: "ONE_WEEK", 14: "TWO_WEEKS"}
_RETENTION_NAMES |= {30: "ONE_MONTH", 60: "TWO_MONTHS", 90: "THREE_MONTHS", 180: "SIX_MONTHS"}
_RETENTION_NAMES |= {365: "ONE_YEAR"}


class SluiceFunction(Construct):
    """The Lambda `functions.<name>.handler`; rights come by `allow`, one resource at a time."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        shape: FunctionShape,
        configuration: Configuration,
        code: lambda_.Code,
        layers: Sequence[lambda_.ILayerVersion],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id)
        self.shape = shape
        self._objects: iam.Policy | None = None
        observability = configuration.observability
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=logs.RetentionDays[_RETENTION_NAMES[observability.log_retention_days]],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What Sluice's function {shape.name} may do",
        )
        # Apart from the other rights, because streams of a log group cannot be named in advance.
        iam.Policy(
            self,
            "WriteLogs",
            roles=[self.role],
            statements=[
                iam.PolicyStatement(
                    actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                    resources=[log_group.log_group_arn],
                )
            ],
        )
        if observability.tracing:
            iam.Policy(
                self,
                "WriteTraces",
                roles=[self.role],
                statements=[
                    iam.PolicyStatement(
                        actions=["xray:PutTraceSegments", "xray:PutTelemetryRecords"],
                        resources=["*"],
                    )
                ],
            )
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"Sluice: {shape.name}",
            runtime=lambda_.Runtime(
                f"python{configuration.runtime.python}", lambda_.RuntimeFamily.PYTHON
            ),
            architecture=_ARCHITECTURES[configuration.runtime.architecture],
            handler=f"functions.{shape.name}.handler",
            code=code,
            layers=list(layers),
            # Immutable for the function, so that it gets no right that is not counted here.
            role=self.role.without_policy_updates(),
            timeout=cdk.Duration.seconds(shape.timeout_seconds),
            memory_size=shape.memory_mb,
            tracing=(
                lambda_.Tracing.ACTIVE if observability.tracing else lambda_.Tracing.PASS_THROUGH
            ),
            log_group=log_group,
            logging_format=lambda_.LoggingFormat.TEXT,
            recursive_loop=(
                lambda_.RecursiveLoop.ALLOW
                if shape.kicks_itself
                else lambda_.RecursiveLoop.TERMINATE
            ),
            environment={
                LOG_LEVEL: observability.log_level,
                METRICS_NAMESPACE: NAMESPACE,
                SERVICE_NAME: shape.name,
                **environment,
            },
        )

        if configuration.network:
            self._run_in(configuration.network)

    def _run_in(self, network: NetworkSettings) -> None:
        """Lambda makes network interfaces in the subnets with the function's role."""
        interfaces = iam.Policy(
            self,
            "UseNetwork",
            roles=[self.role],
            statements=[
                iam.PolicyStatement(
                    actions=_INTERFACE_ACTIONS,
                    resources=["*"],
                ),
                # The function's own code needs none of these rights, so it does not get them.
                iam.PolicyStatement(
                    effect=iam.Effect.DENY,
                    actions=_INTERFACE_ACTIONS,
                    resources=["*"],
                    conditions={"ArnLike": {"lambda:SourceFunctionArn": self._any_function()}},
                ),
            ],
        )
        function = cast("lambda_.CfnFunction", self.function.node.default_child)
        function.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(network.subnets), security_group_ids=list(network.security_groups)
        )
        # Lambda checks the role's rights when the function is created.
        function.node.add_dependency(interfaces)

    def _any_function(self) -> str:
        return cdk.Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name="*",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )

    def allow(self, service: str, actions: Sequence[str], *arns: str) -> None:
        """Grant `<service>:<action>` for each action on exactly these resources."""
        iam.Grant.add_to_principal(
            grantee=self.role,
            actions=[f"{service}:{action}" for action in actions],
            resource_arns=list(arns),
        ).assert_success()

    def allow_answering_tasks(self) -> None:
        """Grant the ending of Step Functions tasks; by the reference it takes no resource."""
        iam.Policy(
            self,
            "AnswerTasks",
            roles=[self.role],
            statements=[
                iam.PolicyStatement(
                    actions=["states:SendTaskSuccess", "states:SendTaskFailure"],
                    resources=["*"],
                )
            ],
        )

    def allow_reading_ec2(self) -> None:
        """Grant the reading of machines and public prices; these actions take no resource."""
        iam.Policy(
            self,
            "ReadEC2",
            roles=[self.role],
            statements=[
                iam.PolicyStatement(
                    actions=[
                        "ec2:DescribeInstances",
                        "ec2:DescribeInstanceTypes",
                        "ec2:DescribeSpotPriceHistory",
                        "pricing:GetProducts",
                    ],
                    resources=["*"],
                )
            ],
        )

    def allow_objects(self, actions: Sequence[str], arn: str) -> None:
        """Grant S3 actions on the objects of one prefix, in a policy apart from the others."""
        if self._objects is None:
            self._objects = iam.Policy(self, "Objects", roles=[self.role])
        self._objects.add_statements(
            iam.PolicyStatement(actions=[f"s3:{action}" for action in actions], resources=[arn])
        )

    def allow_listing(self, bucket_arn: str, prefix: str) -> None:
        """Grant listing the keys below one prefix; without it a missing object looks forbidden."""
        self.role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[bucket_arn],
                conditions={"StringLike": {"s3:prefix": f"{prefix}*"}},
            )
        )
