"""EventBridge rules: submissions from our bus, news about machines from the default bus."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.queues import Queues

_LOSING_STATES = ["stopping", "stopped", "shutting-down", "terminated"]


def add_rules(scope: Construct, *, bus: events.IEventBus, queues: Queues) -> None:
    """Connect both buses to the queues `events` and `interruptions`."""
    account = [cdk.Stack.of(scope).account]
    undelivered = queues.last_resorts["undelivered"]
    events.Rule(
        scope,
        "Submissions",
        event_bus=bus,
        description="Workloads submitted as events",
        event_pattern=events.EventPattern(
            account=account, detail_type=["Sluice Workload Submission"]
        ),
        targets=[targets.SqsQueue(queues.main["events"], dead_letter_queue=undelivered)],
    )
    news = {
        "SpotNews": events.EventPattern(
            account=account,
            source=["aws.ec2"],
            detail_type=[
                "EC2 Spot Instance Interruption Warning",
                "EC2 Instance Rebalance Recommendation",
            ],
        ),
        "InstanceNews": events.EventPattern(
            account=account,
            source=["aws.ec2"],
            detail_type=["EC2 Instance State-change Notification"],
            detail={"state": _LOSING_STATES},
        ),
        "HealthNews": events.EventPattern(
            account=account,
            source=["aws.health"],
            detail_type=["AWS Health Event"],
            detail={"service": ["EC2"], "eventTypeCategory": ["scheduledChange", "issue"]},
        ),
    }
    for name, pattern in news.items():
        events.Rule(
            scope,
            name,
            event_pattern=pattern,
            targets=[
                targets.SqsQueue(
                    queues.main["interruptions"],
                    dead_letter_queue=undelivered,
                    # Older news is no help: the machine is gone, and observe has seen it.
                    max_event_age=cdk.Duration.minutes(5),
                )
            ],
        )
