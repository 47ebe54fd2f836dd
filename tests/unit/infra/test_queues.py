from typing import Any

from sluice.message_queues import QUEUES

from infra.functions import FUNCTIONS
from tests.unit.infra.conftest import Assembly

PRINCIPAL = "arn:aws:iam::111122223333:role/research-submitter"


def queues(assembly: Assembly) -> dict[str, dict[str, Any]]:
    found = assembly.resources("Control", "AWS::SQS::Queue")
    return {name.removeprefix("Queues")[:-8]: each for name, each in found.items()}


def policy_of(assembly: Assembly, queue: str) -> list[dict[str, Any]]:
    policies = assembly.resources("Control", "AWS::SQS::QueuePolicy")
    (found,) = [each for name, each in policies.items() if name.startswith(f"Queues{queue}Policy")]
    return found["PolicyDocument"]["Statement"]


def test_every_queue_has_a_dead_letter_queue_and_at_least_five_tries(assembly: Assembly) -> None:
    found = queues(assembly)

    for shape in QUEUES:
        redrive = found[shape.name.title()]["RedrivePolicy"]
        target = redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]
        assert target.startswith(f"Queues{shape.name.title()}Dead")
        assert redrive["maxReceiveCount"] >= 5


def test_a_message_is_tried_for_thirty_timeouts_unless_it_is_an_interruption() -> None:
    timeouts = {shape.name: shape.timeout_seconds for shape in FUNCTIONS}

    for shape in QUEUES:
        timeout = timeouts[shape.consumer]
        if shape.consumer == "interrupt":
            assert timeout < shape.visibility_seconds <= 30
        else:
            assert shape.visibility_seconds >= 3 * timeout
            assert shape.receives * shape.visibility_seconds >= 30 * timeout


def test_every_queue_is_encrypted_and_refuses_plain_http(assembly: Assembly) -> None:
    for name, queue in queues(assembly).items():
        assert queue["SqsManagedSseEnabled"] is True
        assert any(
            statement["Effect"] == "Deny"
            and statement["Action"] == "sqs:*"
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in policy_of(assembly, name)
        )


def test_kicks_are_fifo_with_high_throughput_and_own_deduplication_ids(
    assembly: Assembly,
) -> None:
    kicks = queues(assembly)["Kicks"]

    assert kicks["FifoQueue"] is True
    assert kicks["DeduplicationScope"] == "messageGroup"
    assert kicks["FifoThroughputLimit"] == "perMessageGroupId"
    assert "ContentBasedDeduplication" not in kicks


def test_only_listed_principals_of_the_organization_may_submit(assembly: Assembly) -> None:
    by_sid = {each.get("Sid"): each for each in policy_of(assembly, "Submissions")}

    assert by_sid["Listed"]["Effect"] == "Allow"
    assert by_sid["Listed"]["Principal"] == {"AWS": PRINCIPAL}
    assert by_sid["Listed"]["Action"] == "sqs:SendMessage"
    assert {sid: by_sid[sid]["Condition"] for sid in by_sid if by_sid[sid]["Effect"] == "Deny"} == {
        None: {"Bool": {"aws:SecureTransport": "false"}},
        "NoServices": {"Bool": {"aws:PrincipalIsAWSService": "true"}},
        "NobodyElse": {"ArnNotEquals": {"aws:PrincipalArn": [PRINCIPAL]}},
        "OwnOrganization": {"StringNotEquals": {"aws:PrincipalOrgID": "o-abcdefghij"}},
    }


def test_only_our_rules_may_send_to_the_queues_of_events(assembly: Assembly) -> None:
    for queue, rules in (("Events", 1), ("Interruptions", 3), ("Completions", 1), ("Answers", 1)):
        allowed = [each for each in policy_of(assembly, queue) if each["Effect"] == "Allow"]
        assert len(allowed) == rules
        for statement in allowed:
            assert statement["Principal"] == {"Service": "events.amazonaws.com"}
            assert "aws:SourceArn" in statement["Condition"]["ArnEquals"]
