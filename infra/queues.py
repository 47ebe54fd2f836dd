"""The queues, each with a dead-letter queue, encrypted, for TLS only."""

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct
from sluice.configuration import Submissions
from sluice.message_queues import LAST_RESORTS, QUEUES, MessageQueue


class Queues(Construct):
    """`main` by name, `dead` by the name of the main queue, `last_resorts` by name.

    `all_dead` are the latter two: wherever messages end.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.dead = {shape.name: self._dead(shape) for shape in QUEUES}
        self.main = {shape.name: self._main(shape) for shape in QUEUES}
        self.last_resorts = {queue.name: self._queue(queue.name.title()) for queue in LAST_RESORTS}
        self.all_dead = self.dead | self.last_resorts

    def _main(self, shape: MessageQueue) -> sqs.Queue:
        return self._queue(
            shape.name.title(),
            fifo=shape.fifo or None,
            # Both together are what AWS calls high throughput.
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if shape.fifo else None,
            fifo_throughput_limit=(
                sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if shape.fifo else None
            ),
            visibility_timeout=cdk.Duration.seconds(shape.visibility_seconds),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead[shape.name], max_receive_count=shape.receives
            ),
        )

    def _dead(self, shape: MessageQueue) -> sqs.Queue:
        return self._queue(f"{shape.name.title()}Dead", fifo=shape.fifo or None)

    def _queue(self, construct_id: str, **options: Any) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
            **options,
        )


def restrict_senders(queue: sqs.Queue, *, submissions: Submissions) -> None:
    """Let only the listed principals send, nobody outside the organization, and no AWS service.

    A service would show itself as the sender, whoever caused it to send.
    """
    _deny(queue, "NoServices", {"Bool": {"aws:PrincipalIsAWSService": "true"}})
    if submissions.principals:
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Listed",
                principals=[iam.ArnPrincipal(arn) for arn in submissions.principals],
                actions=["sqs:SendMessage"],
                resources=[queue.queue_arn],
            )
        )
        listed = list(submissions.principals)
        _deny(queue, "NobodyElse", {"ArnNotEquals": {"aws:PrincipalArn": listed}})
    if submissions.organization:
        organization = submissions.organization
        _deny(queue, "OwnOrganization", {"StringNotEquals": {"aws:PrincipalOrgID": organization}})


def _deny(queue: sqs.Queue, sid: str, conditions: dict[str, Any]) -> None:
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            sid=sid,
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            conditions=conditions,
        )
    )
