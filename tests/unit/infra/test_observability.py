from sluice.message_queues import DEAD_LETTERS, QUEUES
from sluice.metrics import Metric

from tests.unit.infra.conftest import Assembly


def test_every_dead_letter_and_every_waiting_queue_raises_an_alarm(assembly: Assembly) -> None:
    alarms = assembly.resources("Observability", "AWS::CloudWatch::Alarm")
    names = {name[:-8] for name in alarms}

    assert {f"DeadLetters{name.title()}" for name in DEAD_LETTERS} <= names
    assert {f"OldestMessage{queue.name.title()}" for queue in QUEUES} <= names
    assert {"LedgerDrift", "StreamLag", "ErrorsObserve", "WorkloadsThrottled"} <= names


def test_alarms_tell_the_topics_and_say_what_to_do(assembly: Assembly) -> None:
    for alarm in assembly.resources("Observability", "AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] == ["arn:aws:sns:eu-west-1:111122223333:on-call"]
        assert alarm["AlarmDescription"]
        assert alarm["TreatMissingData"] == "notBreaching"


def test_there_is_one_dashboard_named_after_the_deployment(assembly: Assembly) -> None:
    (dashboard,) = assembly.resources("Observability", "AWS::CloudWatch::Dashboard").values()

    assert dashboard["DashboardName"] == "sluice"


def test_the_dashboard_shows_every_metric_but_two(assembly: Assembly) -> None:
    (dashboard,) = assembly.resources("Observability", "AWS::CloudWatch::Dashboard").values()
    body = str(dashboard["DashboardBody"])
    shown = {metric for metric in Metric if f'"{metric.metric_name}"' in body}

    assert {*Metric} - shown == {Metric.INTERRUPTED_WORKLOADS, Metric.TASKS_ANSWERED}
