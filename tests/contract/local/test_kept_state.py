"""What a stopped stack keeps, on a stack of its own."""

import pytest
from conftest import eventually

from local import stack
from local.settings import Settings, default_cache
from tests.contract.local.conftest import Stack
from tests.contract.local.test_local_stack import a_job

pytestmark = [pytest.mark.stack, pytest.mark.slow]

CODE = """
import botocore.session, json

def handler(event, context):
    sqs = botocore.session.get_session().create_client("sqs")
    url = sqs.get_queue_url(QueueName="kept")["QueueUrl"]
    for record in event["Records"]:
        sqs.send_message(QueueUrl=url, MessageBody=record["dynamodb"]["Keys"]["pk"]["S"])
"""
TRUST = {
    "Effect": "Allow",
    "Principal": {"Service": "lambda.amazonaws.com"},
    "Action": "sts:AssumeRole",
}
RIGHTS = {"Effect": "Allow", "Action": ["sqs:*", "dynamodb:*"], "Resource": "*"}


def relay_of_a_stream():
    """A table whose changes a function passes on to the queue `kept`."""
    key = {"AttributeName": "pk"}
    return {
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "kept"}},
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "TableName": "kept",
                "KeySchema": [key | {"KeyType": "HASH"}],
                "AttributeDefinitions": [key | {"AttributeType": "S"}],
                "BillingMode": "PAY_PER_REQUEST",
                "StreamSpecification": {"StreamViewType": "KEYS_ONLY"},
            },
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [TRUST]},
                "Policies": [
                    {
                        "PolicyName": "own",
                        "PolicyDocument": {"Version": "2012-10-17", "Statement": [RIGHTS]},
                    }
                ],
            },
        },
        "Relay": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.13",
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": CODE},
                "Timeout": 30,
            },
        },
        "Source": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "FunctionName": {"Ref": "Relay"},
                "EventSourceArn": {"Fn::GetAtt": ["Table", "StreamArn"]},
                "StartingPosition": "TRIM_HORIZON",
            },
        },
    }


def write(aws, *keys):
    """Put items and return what the function passes on, one message for each."""
    sqs, passed_on = aws.client("sqs"), []
    url = sqs.get_queue_url(QueueName="kept")["QueueUrl"]
    for key in keys:
        aws.client("dynamodb").put_item(TableName="kept", Item={"pk": {"S": key}})

    def all_came():
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            passed_on.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(passed_on) >= len(keys)

    eventually(all_came)
    return passed_on


def test_a_kept_state_is_resumed_and_a_fresh_one_is_empty(tmp_path) -> None:
    settings = Settings(tmp_path, default_cache(), nodes="simulated")
    first = stack.up(settings, print, deploy=False)
    Stack(first, tmp_path).apply(a_job("kept", "spot"))
    assert Stack(first, tmp_path).deploy("kept", relay_of_a_stream()) == "CREATE_COMPLETE"
    assert sorted(write(Stack(first, tmp_path), "a", "b", "c")) == ["a", "b", "c"]

    stack.down(tmp_path, keep=True)
    second = Stack(stack.up(settings, print, deploy=False), tmp_path)

    assert second.endpoints == first
    assert write(second, "d") == ["d"], "streams are read on, too"
    assert second.api.call("GET", "/apis/batch/v1/namespaces/default/jobs/kept")

    stack.down(tmp_path, keep=True)
    third = Stack(stack.up(settings, print, fresh=True, deploy=False), tmp_path)

    assert third.client("sqs").list_queues().get("QueueUrls", []) == []
    assert third.api.call("GET", "/apis/batch/v1/namespaces/default/jobs")["items"] == []
    stack.down(tmp_path)
