"""What starts the functions: queues, the stream, schedules, rules, the URL."""

import json
from typing import Any

from tests.unit.infra.conftest import Assembly


def mappings(assembly: Assembly) -> dict[str, dict[str, Any]]:
    found = assembly.resources("Control", "AWS::Lambda::EventSourceMapping")
    return {name[:-8]: each for name, each in found.items()}


def patterns(assembly: Assembly) -> dict[str, dict[str, Any]]:
    found = assembly.resources("Control", "AWS::Events::Rule")
    return {name[:-8]: each for name, each in found.items()}


def test_every_queue_feeds_its_function_and_takes_partial_answers(assembly: Assembly) -> None:
    found = mappings(assembly)

    assert set(found) == {
        "SubmitFromSubmissions",
        "SubmitFromEvents",
        "AdmitFromKicks",
        "ActFromCommands",
        "ProvisionFromProvisions",
        "InterruptFromInterruptions",
        "InterruptFromNotices",
        "CompleteFromCompletions",
        "AnswerFromAnswers",
        "RelayFromStream",
    }
    for mapping in found.values():
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_no_mapping_filters_messages_away(assembly: Assembly) -> None:
    assert not [each for each in mappings(assembly).values() if "FilterCriteria" in each]


def test_a_poisoned_change_cannot_block_the_stream(assembly: Assembly) -> None:
    stream = mappings(assembly)["RelayFromStream"]

    assert stream["StartingPosition"] == "TRIM_HORIZON"
    assert stream["BatchSize"] == 100
    assert stream["BisectBatchOnFunctionError"] is True
    assert 0 < stream["MaximumRetryAttempts"] <= 20
    assert 0 < stream["MaximumRecordAgeInSeconds"] <= 3600
    destination = stream["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert destination.startswith("QueuesFailures")


def test_asynchronous_functions_report_failures_and_do_not_pile_up(assembly: Assembly) -> None:
    found = assembly.resources("Control", "AWS::Lambda::EventInvokeConfig").values()

    assert len(found) == 3
    for config in found:
        assert config["MaximumEventAgeInSeconds"] == 60
        assert config["MaximumRetryAttempts"] == 0
        destination = config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
        assert destination.startswith("QueuesFailures")


def test_every_cluster_is_observed_every_minute(assembly: Assembly) -> None:
    found = assembly.resources("Control", "AWS::Scheduler::Schedule")
    inputs = {name[9:-8]: json.loads(each["Target"]["Input"]) for name, each in found.items()}

    assert inputs == {
        "Sweep": {},
        "ProvisionBatch1": {"cluster": "batch-1"},
        "ProvisionBatch2": {"cluster": "batch_2"},
        "ObserveBatch1": {"cluster": "batch-1"},
        "ObserveBatch2": {"cluster": "batch_2"},
    }
    for schedule in found.values():
        assert schedule["ScheduleExpression"] == "rate(1 minute)"
        dead = schedule["Target"]["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0]
        assert dead.startswith("QueuesUndelivered")


def test_submissions_by_event_come_from_our_bus_and_account(assembly: Assembly) -> None:
    rule = patterns(assembly)["SubmittedByEvent"]

    assert rule["EventPattern"] == {
        "account": [{"Ref": "AWS::AccountId"}],
        "detail-type": ["Sluice Workload Submission"],
    }
    assert "EventBusName" in rule


def test_answers_and_ends_come_from_our_bus_and_account(assembly: Assembly) -> None:
    found, own = patterns(assembly), [{"Ref": "AWS::AccountId"}]

    assert found["AnsweredByEvent"]["EventPattern"] == {
        "account": own,
        "detail-type": ["Admission Check Answered"],
    }
    assert found["TaskDone"]["EventPattern"] == {
        "account": own,
        "source": ["sluice"],
        "detail": {"data": {"completion": [{"exists": True}]}},
    }
    assert found["TaskDone"]["Targets"][0]["InputPath"] == "$.detail.data"
    assert all("EventBusName" in found[name] for name in ("AnsweredByEvent", "TaskDone"))


def test_news_of_machines_comes_from_aws_itself(assembly: Assembly) -> None:
    news = {
        name: each["EventPattern"]
        for name, each in patterns(assembly).items()
        if name.endswith("News")
    }

    assert {name: (each["source"], each["detail-type"]) for name, each in news.items()} == {
        "SpotNews": (
            ["aws.ec2"],
            [
                "EC2 Spot Instance Interruption Warning",
                "EC2 Instance Rebalance Recommendation",
                "EC2 Capacity Reservation Instance Interruption Warning",
                "Capacity Block Expiration Warning",
                "Capacity Block Reservation Expiration Warning",
            ],
        ),
        "InstanceNews": (["aws.ec2"], ["EC2 Instance State-change Notification"]),
        "HealthNews": (["aws.health"], ["AWS Health Event"]),
    }
    assert all(each["account"] == [{"Ref": "AWS::AccountId"}] for each in news.values())


def test_every_rule_has_a_dead_letter_queue(assembly: Assembly) -> None:
    for rule in patterns(assembly).values():
        for target in rule["Targets"]:
            dead = target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0]
            assert dead.startswith("QueuesUndelivered")


def test_the_api_asks_for_a_signature(assembly: Assembly) -> None:
    (url,) = assembly.resources("Control", "AWS::Lambda::Url").values()

    assert url["AuthType"] == "AWS_IAM"
    assert "Cors" not in url
    assert not assembly.resources("Control", "AWS::Lambda::Permission")
