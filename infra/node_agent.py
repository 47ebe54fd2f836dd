"""What the node agent of one cluster needs of AWS: an identity, a repository, and its addresses."""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct
from sluice.core.values.log_keys import LOGS

from infra.function import SluiceFunction
from infra.published import Published

NAMESPACE = ACCOUNT = "sluice-agent"
KEPT_DAYS = 90
_PUSH = (
    "BatchCheckLayerAvailability",
    "InitiateLayerUpload",
    "UploadLayerPart",
    "CompleteLayerUpload",
    "PutImage",
    "BatchGetImage",
)


class NodeAgent(Construct):
    """Rights by EKS Pod Identity, and a repository for the images of checkpoints."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        parameter_prefix: str,
        retain: bool,
        bucket: s3.IBucket,
        notices: sqs.IQueue,
        removers: Mapping[str, SluiceFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self.repository = ecr.Repository(
            self,
            "Checkpoints",
            encryption=ecr.RepositoryEncryption.AES_256,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            # Process memory is no software: there is nothing to scan, and much to keep private.
            image_scan_on_push=False,
            lifecycle_rules=[ecr.LifecycleRule(max_image_age=cdk.Duration.days(KEPT_DAYS))],
            removal_policy=cdk.RemovalPolicy.RETAIN if retain else cdk.RemovalPolicy.DESTROY,
            empty_on_delete=not retain,
        )
        self.role = self._role(cluster, parameter_prefix, bucket, notices)
        eks.CfnPodIdentityAssociation(
            self,
            "Association",
            cluster_name=cluster,
            namespace=NAMESPACE,
            service_account=ACCOUNT,
            role_arn=self.role.role_arn,
        )
        for name, function in removers.items():
            iam.Policy(
                self,
                f"{name.title()}Removes",
                roles=[function.role],
                statements=[
                    iam.PolicyStatement(
                        actions=["ecr:BatchDeleteImage"],
                        resources=[self.repository.repository_arn],
                    )
                ],
            )
        Published(
            self,
            prefix=parameter_prefix,
            values={f"clusters/{cluster}/checkpoints": self._address()},
        )

    def _address(self) -> str:
        """As the registry itself says it; CDK would put it together from the Region's domain."""
        repository = self.repository.node.default_child
        if not isinstance(repository, ecr.CfnRepository):
            raise TypeError("a repository is made of a CfnRepository")
        return repository.attr_repository_uri

    def _role(self, cluster: str, prefix: str, bucket: s3.IBucket, notices: sqs.IQueue) -> iam.Role:
        tags = {
            "aws:RequestTag/eks-cluster-name": cluster,
            "aws:RequestTag/kubernetes-namespace": NAMESPACE,
            "aws:RequestTag/kubernetes-service-account": ACCOUNT,
        }
        identity = iam.ServicePrincipal("pods.eks.amazonaws.com", conditions={"StringEquals": tags})
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.SessionTagsPrincipal(identity),
            description=f"What Sluice's node agents in {cluster} may do",
        )
        parameters = (f"{prefix}/queues/notices", f"{prefix}/clusters/{cluster}/checkpoints")
        stack = cdk.Stack.of(self)
        statements = {
            "sqs": (["sqs:SendMessage"], [notices.queue_arn]),
            "ssm": (
                ["ssm:GetParameter"],
                [
                    stack.format_arn(
                        service="ssm", resource="parameter", resource_name=name.removeprefix("/")
                    )
                    for name in parameters
                ],
            ),
            "ecr": ([f"ecr:{action}" for action in _PUSH], [self.repository.repository_arn]),
        }
        for actions, resources in statements.values():
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources))
        # Apart from the others, because what they reach cannot be named in advance, or not at all.
        iam.Policy(
            self,
            "StoreArchives",
            roles=[role],
            statements=[
                iam.PolicyStatement(
                    actions=["s3:PutObject", "s3:AbortMultipartUpload"],
                    resources=[
                        bucket.arn_for_objects("checkpoints/*"),
                        bucket.arn_for_objects(f"{LOGS}*.part-*"),
                    ],
                )
            ],
        )
        iam.Policy(
            self,
            "EnterRegistry",
            roles=[role],
            statements=[
                iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"])
            ],
        )
        return role
