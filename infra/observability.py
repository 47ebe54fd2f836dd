"""One dashboard, and an alarm for everything that somebody must look at."""

from collections.abc import Iterator
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct
from sluice.configuration import Configuration
from sluice.message_queues import QUEUES
from sluice.metrics import NAMESPACE, Metric

from infra.control import ControlStack
from infra.state import StateStack

_MINUTE = cdk.Duration.minutes(1)
_FIVE_MINUTES = cdk.Duration.minutes(5)
_STREAM_LAG_MS = 60_000
_ERRORS_IN_FIVE_MINUTES = 5


class ObservabilityStack(cdk.Stack):
    """Watches State and Control; what is billed here is a few dollars a month."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        state: StateStack,
        control: ControlStack,
        **options: Any,
    ) -> None:
        super().__init__(scope, construct_id, **options)
        self._configuration, self._state, self._control = configuration, state, control
        topics = [
            actions.SnsAction(sns.Topic.from_topic_arn(self, f"Topic{position}", arn))
            for position, arn in enumerate(configuration.observability.alarm_topics)
        ]
        alarms = [*self._queue_alarms(), *self._function_alarms(), *self._state_alarms()]
        for alarm in alarms:
            alarm.add_alarm_action(*topics)
            alarm.add_ok_action(*topics)
        self._dashboard(alarms)

    def _queue_alarms(self) -> Iterator[cloudwatch.Alarm]:
        queues = self._control.queues
        for name, dead_letters in queues.all_dead.items():
            yield self._alarm(
                f"DeadLetters{name.title()}",
                dead_letters.metric_approximate_number_of_messages_visible(
                    period=_MINUTE, statistic="Maximum"
                ),
                above=0,
                description=f"Messages that Sluice could not handle ({name}): they are kept for 14 "
                f"days; `sluice admin dlq -q {name}` shows them, docs/operations.md what to do",
            )
        for queue in QUEUES:
            yield self._alarm(
                f"OldestMessage{queue.name.title()}",
                queues.main[queue.name].metric_approximate_age_of_oldest_message(period=_MINUTE),
                above=queue.oldest_seconds,
                minutes=3,
                description=f"The queue {queue.name} is not emptied: look at the errors of "
                f"{queue.consumer}",
            )

    def _function_alarms(self) -> Iterator[cloudwatch.Alarm]:
        for name, function in self._control.functions.items():
            yield self._alarm(
                f"Errors{name.title()}",
                function.function.metric_errors(period=_FIVE_MINUTES),
                above=_ERRORS_IN_FIVE_MINUTES,
                description=f"The function {name} fails; for act and observe this is how an "
                "unreachable cluster shows",
            )
        yield self._alarm(
            "StreamLag",
            self._control.functions["relay"].function.metric(
                "IteratorAge", statistic="Maximum", period=_MINUTE
            ),
            above=_STREAM_LAG_MS,
            minutes=3,
            description="Changes of workloads are relayed late; until then the sweep steps in",
        )

    def _state_alarms(self) -> Iterator[cloudwatch.Alarm]:
        yield self._alarm(
            "LedgerDrift",
            _of(Metric.LEDGER_DRIFT),
            above=0,
            minutes=2,
            description="A ledger differs from the reservations of its workloads: admission may "
            "be wrong, see the log of sweep",
        )
        yield self._alarm(
            "NodePoolsClosed",
            _of(Metric.NODE_POOLS_CLOSED),
            above=0,
            minutes=30,
            description="A NodePool cannot buy machines for half an hour: `sluice capacity` says "
            "why, and docs/operations.md what to do",
        )
        yield self._alarm(
            "WorkloadsThrottled",
            self._state.tables["Workloads"].metric(
                "WriteThrottleEvents", statistic="Sum", period=_MINUTE
            ),
            above=0,
            minutes=5,
            description="DynamoDB throttles writes to Workloads: raise state.warmThroughput",
        )

    def _alarm(
        self,
        construct_id: str,
        metric: cloudwatch.Metric,
        *,
        above: int,
        description: str,
        minutes: int = 1,
    ) -> cloudwatch.Alarm:
        return metric.create_alarm(
            self,
            construct_id,
            alarm_description=description,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=minutes,
            # No data means that nothing happened.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _dashboard(self, alarms: list[cloudwatch.Alarm]) -> None:
        queues = self._control.queues
        functions = {name: each.function for name, each in self._control.functions.items()}
        workloads = self._state.tables["Workloads"]
        dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self._configuration.name,
            default_interval=cdk.Duration.hours(3),
        )
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24)
        )
        dashboard.add_widgets(
            _graph(
                "Submissions",
                _of(Metric.SUBMISSIONS_ACCEPTED),
                _of(Metric.SUBMISSIONS_REJECTED),
            ),
            _graph(
                "Admissions",
                _of(Metric.ADMITTED_WORKLOADS),
                _of(Metric.LEDGER_CONFLICTS),
            ),
            _graph("Ledger drift", _of(Metric.LEDGER_DRIFT)),
        )
        dashboard.add_widgets(
            _graph(
                "Pods without a node",
                _of(Metric.PODS_WAITING_FOR_NODES),
            ),
            _graph(
                "NodePools that cannot buy",
                _of(Metric.NODE_POOLS_CLOSED),
            ),
            _graph("Sent back from sold-out flavors", _of(Metric.SOLD_OUT_REQUEUES)),
        )
        dashboard.add_widgets(
            _graph(
                "Messages waiting",
                *(
                    queue.metric_approximate_number_of_messages_visible(period=_MINUTE, label=name)
                    for name, queue in queues.main.items()
                ),
            ),
            _graph(
                "Oldest message (s)",
                *(
                    queue.metric_approximate_age_of_oldest_message(period=_MINUTE, label=name)
                    for name, queue in queues.main.items()
                ),
            ),
            _graph(
                "Dead letters",
                *(
                    queue.metric_approximate_number_of_messages_visible(period=_MINUTE, label=name)
                    for name, queue in queues.all_dead.items()
                ),
            ),
        )
        dashboard.add_widgets(
            _graph(
                "Function errors",
                *(
                    each.metric_errors(period=_MINUTE, label=name)
                    for name, each in functions.items()
                ),
            ),
            _graph(
                "Function duration, p95 (ms)",
                *(
                    each.metric_duration(period=_MINUTE, statistic="p95", label=name)
                    for name, each in functions.items()
                ),
            ),
            _graph(
                "DynamoDB throttles",
                workloads.metric("WriteThrottleEvents", statistic="Sum", period=_MINUTE),
                workloads.metric("ReadThrottleEvents", statistic="Sum", period=_MINUTE),
            ),
        )


def _of(metric: Metric) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.metric_name,
        dimensions_map=metric.dimensions,
        statistic=metric.statistic,
        period=_MINUTE,
    )


def _graph(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8)
