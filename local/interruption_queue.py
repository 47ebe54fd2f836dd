"""Karpenter's own interruption queue, for comparison: with it, Karpenter drains on a warning.

Sluice never reads it; two consumers of one queue would steal each other's messages.
"""

import json

import boto3

from local.endpoints import Endpoints

RETENTION_SECONDS = "300"
KINDS = [
    "EC2 Spot Instance Interruption Warning",
    "EC2 Instance Rebalance Recommendation",
    "EC2 Instance State-change Notification",
]


def make_queue(endpoints: Endpoints, name: str) -> None:
    """The queue, and the rule that fills it; both are left as they are if they exist."""
    session = boto3.Session(
        aws_access_key_id=endpoints.access_key_id,
        aws_secret_access_key=endpoints.secret_access_key,
        region_name=endpoints.region,
    )
    sqs = session.client("sqs", endpoint_url=endpoints.aws)
    events = session.client("events", endpoint_url=endpoints.aws)
    url = sqs.create_queue(
        QueueName=name, Attributes={"MessageRetentionPeriod": RETENTION_SECONDS}
    )["QueueUrl"]
    described = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    pattern = {"source": ["aws.ec2"], "detail-type": KINDS}
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    arn = described["Attributes"]["QueueArn"]
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
