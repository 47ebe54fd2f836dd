"""The queues, each with a dead-letter queue, encrypted, for TLS only."""

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct
from sluice.configuration import Submissions


@dataclass(frozen=True, kw_only=True)
class QueueShape:
    """One queue; `visibility_seconds` is at least six times its function's timeout, but see there.

    `receives` is how often a message is tried: below 5, throttling alone would send good messages
    to the dead-letter queue.
    """

    name: str
    visibility_seconds: int
    receives: int = 5
    fifo: bool = False


QUEUES = (
    QueueShape(name="submissions", visibility_seconds=180),
    QueueShape(name="events", visibility_seconds=180),
    QueueShape(name="kicks", visibility_seconds=360, fifo=True),
    QueueShape(name="commands", visibility_seconds=360, receives=10),
    # A spot notice lasts two minutes: a quick second try beats the advice of six timeouts.
    QueueShape(name="interruptions", visibility_seconds=30),
)
# Where deliveries end that have no queue of their own to wait in.
LAST_RESORTS = ("failures", "undelivered")

_LONGEST = cdk.Duration.days(14)


class Queues(Construct):
    """`main` by name, `dead` by the name of the main queue, `last_resorts` by name."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.dead = {shape.name: self._dead(shape) for shape in QUEUES}
        self.main = {shape.name: self._main(shape) for shape in QUEUES}
        self.last_resorts = {name: self._last_resort(name) for name in LAST_RESORTS}

    def _main(self, shape: QueueShape) -> sqs.Queue:
        return sqs.Queue(
            self,
            shape.name.title(),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=cdk.Duration.seconds(shape.visibility_seconds),
            retention_period=_LONGEST,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead[shape.name], max_receive_count=shape.receives
            ),
            **_high_throughput_fifo() if shape.fifo else {},
        )

    def _dead(self, shape: QueueShape) -> sqs.Queue:
        return sqs.Queue(
            self,
            f"{shape.name.title()}Dead",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=_LONGEST,
            **{"fifo": True} if shape.fifo else {},
        )

    def _last_resort(self, name: str) -> sqs.Queue:
        return sqs.Queue(
            self,
            name.title(),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=_LONGEST,
        )


def _high_throughput_fifo() -> dict[str, object]:
    return {
        "fifo": True,
        "deduplication_scope": sqs.DeduplicationScope.MESSAGE_GROUP,
        "fifo_throughput_limit": sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
    }


def restrict_senders(queue: sqs.Queue, *, submissions: Submissions) -> None:
    """Let only the listed principals send, nobody outside the organization, and no AWS service.

    A service would show itself as the sender, whoever caused it to send.
    """
    anyone = [iam.AnyPrincipal()]
    send = {"actions": ["sqs:SendMessage"], "resources": [queue.queue_arn]}
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            sid="NoServices",
            effect=iam.Effect.DENY,
            principals=anyone,
            conditions={"Bool": {"aws:PrincipalIsAWSService": "true"}},
            **send,
        )
    )
    if submissions.principals:
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Listed",
                principals=[iam.ArnPrincipal(arn) for arn in submissions.principals],
                **send,
            )
        )
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NobodyElse",
                effect=iam.Effect.DENY,
                principals=anyone,
                conditions={"ArnNotEquals": {"aws:PrincipalArn": list(submissions.principals)}},
                **send,
            )
        )
    if submissions.organization:
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="OwnOrganization",
                effect=iam.Effect.DENY,
                principals=anyone,
                conditions={"StringNotEquals": {"aws:PrincipalOrgID": submissions.organization}},
                **send,
            )
        )
