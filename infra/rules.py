"""EventBridge rules: submissions from our bus, news about machines from the default bus."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.queues import Queues

_LOSING_STATES = ["stopping", "stopped", "shutting-down", "terminated"]


def accept_submissions(scope: Construct, *, bus: events.IEventBus, queues: Queues) -> None:
    """Connect our bus to the queue `events`."""
    events.Rule(
        scope,
        "SubmittedByEvent",
        event_bus=bus,
        description="Workloads submitted as events",
        event_pattern=events.EventPattern(
            account=[cdk.Stack.of(scope).account], detail_type=["Sluice Workload Submission"]
        ),
        targets=[_to("events", queues)],
    )


def hear_answers(scope: Construct, *, bus: events.IEventBus, queues: Queues) -> None:
    """Connect answers of admission checks on our bus to the queue `answers`."""
    events.Rule(
        scope,
        "AnsweredByEvent",
        event_bus=bus,
        description="Admission checks answered as events",
        event_pattern=events.EventPattern(
            account=[cdk.Stack.of(scope).account], detail_type=["Admission Check Answered"]
        ),
        targets=[_to("answers", queues)],
    )


def hear_of_ends(scope: Construct, *, bus: events.IEventBus, queues: Queues) -> None:
    """Connect the ends of workloads that a Step Functions task waits for to `completions`."""
    events.Rule(
        scope,
        "TaskDone",
        event_bus=bus,
        description="Workloads have ended that tasks of Step Functions wait for",
        event_pattern=events.EventPattern(
            account=[cdk.Stack.of(scope).account],
            source=["sluice"],
            detail={"data": {"completion": events.Match.exists()}},
        ),
        targets=[
            _to(
                "completions",
                queues,
                message=events.RuleTargetInput.from_event_path("$.detail.data"),
            )
        ],
    )


def hear_of_machines(scope: Construct, *, queues: Queues) -> None:
    """Connect what EC2 and AWS Health say on the default bus to the queue `interruptions`."""
    account = [cdk.Stack.of(scope).account]
    news = {
        "SpotNews": events.EventPattern(
            account=account,
            source=["aws.ec2"],
            detail_type=[
                "EC2 Spot Instance Interruption Warning",
                "EC2 Instance Rebalance Recommendation",
                "EC2 Capacity Reservation Instance Interruption Warning",
                # AWS's pages disagree on the name of this one.
                "Capacity Block Expiration Warning",
                "Capacity Block Reservation Expiration Warning",
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
            detail={"service": ["EC2"], "eventTypeCategory": ["issue", "scheduledChange"]},
        ),
    }
    for name, pattern in news.items():
        events.Rule(
            scope,
            name,
            event_pattern=pattern,
            targets=[
                _to(
                    "interruptions",
                    queues,
                    # Older news is no help: the machine is gone, and observe has seen it.
                    max_event_age=cdk.Duration.minutes(5),
                )
            ],
        )


def _to(
    queue: str,
    queues: Queues,
    *,
    message: events.RuleTargetInput | None = None,
    max_event_age: cdk.Duration | None = None,
) -> targets.SqsQueue:
    """One of our queues as a target; what cannot be delivered is kept."""
    return targets.SqsQueue(
        queues.main[queue],
        dead_letter_queue=queues.last_resorts["undelivered"],
        message=message,
        max_event_age=max_event_age,
    )
