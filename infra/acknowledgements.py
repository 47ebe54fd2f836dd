"""Every finding of cdk-nag that stands, with the reason why it may."""

from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

import aws_cdk as cdk
from sluice.configuration import Configuration

_PACK = "AwsSolutions"
# How a finding names the bucket; synthesis prints the new name should it ever change.
_BUCKET = "ExportsOutputFnGetAttBucket83908E77Arn063C8555"
_ONE_PREFIX = (
    "Objects cannot be listed in advance; these S3 actions reach one prefix of one bucket."
)


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """A rule on the constructs whose path matches the pattern.

    `finding` narrows it to one of several findings; `{name}` stands for the deployment's name.
    A test fails once the day of review has passed, or when an entry no longer explains anything.
    """

    rule: str
    path: str
    reason: str
    finding: str | None = None
    owner: str = "platform team"
    review: date = date(2027, 11, 1)

    def id(self, name: str) -> str:
        """Return the id by which CDK knows the finding in the deployment of that name."""
        detail = f"[{self.finding.format(name=name)}]" if self.finding else ""
        return f"{_PACK}::{_PACK}-{self.rule}{detail}"


ACKNOWLEDGED = (
    *(
        Acknowledged(
            rule="IAM5",
            path="Control/*/Objects",
            finding=f"Resource::{{name}}-state:{_BUCKET}/{prefix}/*",
            reason=_ONE_PREFIX,
        )
        for prefix in ("manifests", "logs", "checkpoints", "passes")
    ),
    Acknowledged(
        rule="IAM5",
        path="Control/*/Objects",
        finding=f"Resource::{{name}}-state:{_BUCKET}/tokens/*",
        reason=_ONE_PREFIX,
    ),
    Acknowledged(
        rule="IAM5",
        path="Control/Complete/AnswerTasks",
        finding="Resource::*",
        reason="By the service authorization reference these actions take no resource; the token "
        "itself is the capability, and nobody else can read it.",
    ),
    *(
        Acknowledged(
            rule="IAM5",
            path="ClusterAccess-*/Agent/StoreArchives",
            finding=f"Resource::{{name}}-state:{_BUCKET}/{objects}",
            reason=_ONE_PREFIX,
        )
        for objects in ("checkpoints/*", "logs/*.part-*")
    ),
    Acknowledged(
        rule="IAM5",
        path="ClusterAccess-*/Agent/EnterRegistry",
        finding="Resource::*",
        reason="A token for ECR takes no resource; what it opens, the other statements say.",
    ),
    Acknowledged(
        rule="IAM5",
        path="Control/Drills/Interrupt",
        finding="Resource::*",
        reason="Finding an instance takes no resource.",
    ),
    Acknowledged(
        rule="IAM5",
        path="Control/Drills/Interrupt",
        finding="Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*",
        reason="Instances come and go; the condition admits those that are tagged for a drill.",
    ),
    Acknowledged(
        rule="IAM5",
        path="Control/*/WriteTraces",
        finding="Resource::*",
        reason="X-Ray's write actions take no resource.",
    ),
    Acknowledged(
        rule="IAM5",
        path="Control/*/ReadEC2",
        finding="Resource::*",
        reason="EC2's read actions take no resource; price lists are public.",
    ),
    Acknowledged(
        rule="L1",
        path="Control/*/Function",
        reason="The runtime is that of the deploying interpreter, which compiles the layers; every "
        "supported Python from 3.11 on can be chosen, the newest among them.",
    ),
    Acknowledged(
        rule="SQS3",
        path="Control/Queues/Failures",
        reason="It is itself where failed asynchronous and stream invocations end; an alarm "
        "watches it.",
    ),
    Acknowledged(
        rule="SQS3",
        path="Control/Queues/Undelivered",
        reason="It is itself the dead-letter queue of rules and schedules; an alarm watches it.",
    ),
)


def acknowledged(configuration: Configuration) -> list[Acknowledged]:
    """Return the entries for one deployment: those above, and what its settings bring."""
    return [
        *ACKNOWLEDGED,
        *(
            Acknowledged(
                rule="IAM5",
                path="Control/Submit/Objects",
                finding=f"Resource::arn:<AWS::Partition>:s3:::{bucket}/*",
                reason="submissions.manifestBuckets of sluice.yaml lists this bucket.",
            )
            for bucket in configuration.submissions.manifest_buckets
        ),
        *(
            [
                Acknowledged(
                    rule="IAM5",
                    path="Control/*/UseNetwork",
                    finding="Resource::*",
                    reason="Lambda makes network interfaces with the role of the function, and AWS "
                    "documents these actions without a resource; the code itself is denied them.",
                )
            ]
            if configuration.network
            else []
        ),
    ]


def acknowledge(app: cdk.App, *, configuration: Configuration) -> None:
    """Record each entry on the constructs of the deployment that it matches."""
    name, entries = configuration.name, acknowledged(configuration)
    for construct in app.node.find_all():
        for entry in entries:
            if fnmatchcase(construct.node.path, entry.path):
                cdk.Validations.of(construct).acknowledge(
                    cdk.Acknowledgment(id=entry.id(name), reason=entry.reason)
                )
