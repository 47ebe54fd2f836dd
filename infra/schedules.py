"""EventBridge Scheduler: what runs every minute."""

import json
from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.function import SluiceFunction

_MINUTE = cdk.Duration.minutes(1)


class Schedules(Construct):
    """A group of schedules with one role, which may invoke exactly the scheduled functions."""

    def __init__(
        self, scope: Construct, construct_id: str, *, failures: sqs.IQueue, undelivered: sqs.IQueue
    ) -> None:
        super().__init__(scope, construct_id)
        self._failures, self._undelivered = failures, undelivered
        self._role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(self).account}},
            ),
        )
        iam.Grant.add_to_principal(
            grantee=self._role,
            actions=["sqs:SendMessage"],
            resource_arns=[undelivered.queue_arn],
        )

    def every_minute(self, target: SluiceFunction, *, inputs: Sequence[Mapping[str, str]]) -> None:
        """Invoke the function once a minute for each input; what fails goes to `failures`."""
        function = target.function
        target.allow("sqs", ["SendMessage"], self._failures.queue_arn)
        function.configure_async_invoke(
            # The next minute is the retry; an older invocation would only look at old news.
            max_event_age=_MINUTE,
            retry_attempts=0,
            on_failure=destinations.SqsDestination(self._failures),
        )
        iam.Grant.add_to_principal(
            grantee=self._role,
            actions=["lambda:InvokeFunction"],
            resource_arns=[function.function_arn],
        )
        for value in inputs:
            name = "".join([target.node.id, *(each.title() for each in value.values())])
            schedule = scheduler.CfnSchedule(
                self,
                name,
                description=f"Sluice: {target.node.id.lower()}",
                schedule_expression="rate(1 minute)",
                flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
                target=scheduler.CfnSchedule.TargetProperty(
                    arn=function.function_arn,
                    role_arn=self._role.role_arn,
                    input=json.dumps(value),
                    retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                        maximum_event_age_in_seconds=60, maximum_retry_attempts=1
                    ),
                    dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(
                        arn=self._undelivered.queue_arn
                    ),
                ),
            )
            # Scheduler checks at creation that it may assume the role.
            schedule.node.add_dependency(self._role)
