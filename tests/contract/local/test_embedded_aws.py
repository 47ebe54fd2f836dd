"""What our launcher corrects in MiniStack, against the pinned release."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from local.pod_identity import Associations
from local.strays import marked

pytestmark = pytest.mark.stack

TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}
CODE = """
import os
import botocore.session

class QuotaExceeded(Exception):
    pass

def handler(event, context):
    if event.get("fail"):
        raise QuotaExceeded("too much")
    client = botocore.session.get_session().create_client
    if event.get("write"):
        client("dynamodb").put_item(TableName="launcher", Item={"pk": {"S": "x"}})
    if "requestContext" in event:
        return event["requestContext"]["authorizer"]["iam"]
    return {
        "arn": client("sts").get_caller_identity()["Arn"],
        "ec2": os.environ["AWS_ENDPOINT_URL_EC2"],
    }
"""


def a_role(*statements):
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": "launcher-role",
            "AssumeRolePolicyDocument": TRUST,
            "Policies": [
                {
                    "PolicyName": "own",
                    "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def deployed(embedded_aws):
    """A function with a role that may read a table, its URL, and an access entry."""
    role = {"Fn::GetAtt": ["Role", "Arn"]}
    allowed = {"Effect": "Allow", "Action": "dynamodb:GetItem", "Resource": "*"}
    status = embedded_aws.deploy(
        "launcher",
        {
            "Role": a_role(allowed),
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "FunctionName": "launcher",
                    "Runtime": "python3.13",
                    "Handler": "index.handler",
                    "Role": role,
                    "Code": {"ZipFile": CODE},
                    "Timeout": 30,
                    "ReservedConcurrentExecutions": 3,
                },
            },
            "Url": {
                "Type": "AWS::Lambda::Url",
                "Properties": {
                    "AuthType": "AWS_IAM",
                    "TargetFunctionArn": {"Fn::GetAtt": ["Function", "Arn"]},
                },
            },
            "Entry": {
                "Type": "AWS::EKS::AccessEntry",
                "Properties": {
                    "ClusterName": "batch-1",
                    "PrincipalArn": role,
                    "KubernetesGroups": ["sluice:act"],
                    "Type": "STANDARD",
                },
            },
            "Association": {
                "Type": "AWS::EKS::PodIdentityAssociation",
                "Properties": {
                    "ClusterName": "batch-1",
                    "Namespace": "agents",
                    "ServiceAccount": "agent",
                    "RoleArn": role,
                },
            },
            "Repository": {
                "Type": "AWS::ECR::Repository",
                "Properties": {"RepositoryName": "launcher/images"},
            },
            "Address": {
                "Type": "AWS::SSM::Parameter",
                "Properties": {
                    "Name": "/launcher/images",
                    "Type": "String",
                    "Value": {"Fn::GetAtt": ["Repository", "RepositoryUri"]},
                },
            },
            "Table": {
                "Type": "AWS::DynamoDB::Table",
                "Properties": {
                    "TableName": "launcher",
                    "BillingMode": "PAY_PER_REQUEST",
                    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                },
            },
        },
    )
    assert status == "CREATE_COMPLETE"
    return embedded_aws


def test_a_function_acts_as_its_own_role(deployed) -> None:
    answer = deployed.invoke("launcher")

    assert answer["arn"] == "arn:aws:sts::123456789012:assumed-role/launcher-role/launcher"
    assert answer["ec2"] == deployed.endpoints.ec2


def test_an_action_that_the_role_lacks_is_denied_by_name(deployed) -> None:
    answer = deployed.invoke("launcher", {"write": True})

    assert "launcher-role" in answer["errorMessage"]
    assert "not authorized to perform: dynamodb:PutItem" in answer["errorMessage"]


def test_a_failed_function_reports_the_class_of_its_exception(deployed) -> None:
    assert deployed.invoke("launcher", {"fail": True})["errorType"] == "QuotaExceeded"


def test_reserved_concurrency_reaches_the_function(deployed) -> None:
    concurrency = deployed.client("lambda").get_function_concurrency(FunctionName="launcher")

    assert concurrency["ReservedConcurrentExecutions"] == 3


def test_the_cluster_is_ours_and_has_the_stacks_access_entry(deployed) -> None:
    eks = deployed.client("eks")
    role = "arn:aws:iam::123456789012:role/launcher-role"

    cluster = eks.describe_cluster(name="batch-1")["cluster"]
    entry = eks.describe_access_entry(clusterName="batch-1", principalArn=role)["accessEntry"]

    assert cluster["status"] == "ACTIVE"
    assert cluster["endpoint"] == deployed.endpoints.cluster_endpoint
    assert cluster["certificateAuthority"]["data"] == deployed.endpoints.certificate_authority
    assert entry["kubernetesGroups"] == ["sluice:act"]


def test_an_account_of_the_cluster_is_associated_with_the_stacks_role(deployed) -> None:
    role_of = Associations(deployed.client("eks"), "batch-1")

    assert role_of("agents", "agent") == "arn:aws:iam::123456789012:role/launcher-role"
    assert role_of("agents", "another") is None


def test_repositories_are_those_of_the_nodes_registry(deployed) -> None:
    published = deployed.client("ssm").get_parameter(Name="/launcher/images")["Parameter"]["Value"]

    assert re.fullmatch(r"127\.0\.0\.1:\d+/launcher/images", published)


def call_url(aws, *, signed):
    config = aws.client("lambda").get_function_url_config(FunctionName="launcher")
    name = config["FunctionUrl"].removeprefix("https://").partition(".")[0]
    request = AWSRequest("GET", f"{aws.endpoints.aws}/_aws/lambda-url/{name}/")
    if signed:
        keys = Credentials(aws.endpoints.access_key_id, aws.endpoints.secret_access_key)
        SigV4Auth(keys, "lambda", "us-east-1").add_auth(request)
    with urllib.request.urlopen(
        urllib.request.Request(request.url, headers=dict(request.headers)), timeout=30
    ) as answer:
        return json.loads(answer.read())


def test_a_function_url_names_its_caller(deployed) -> None:
    caller = call_url(deployed, signed=True)

    assert caller["userArn"] == "arn:aws:iam::123456789012:root"
    assert caller["accessKey"] == deployed.endpoints.access_key_id


def test_a_function_url_refuses_unsigned_calls(deployed) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        call_url(deployed, signed=False)

    assert refused.value.code == 403


def test_events_of_aws_itself_reach_rules(embedded_aws) -> None:
    events, sqs = embedded_aws.client("events"), embedded_aws.client("sqs")
    url = sqs.create_queue(QueueName="interruptions")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    events.put_rule(Name="spot", EventPattern=json.dumps({"source": ["aws.ec2"]}))
    events.put_targets(Rule="spot", Targets=[{"Id": "q", "Arn": arn["Attributes"]["QueueArn"]}])
    entry = {
        "Source": "aws.ec2",
        "DetailType": "EC2 Spot Instance Interruption Warning",
        "Detail": json.dumps({"instance-id": "i-1", "instance-action": "terminate"}),
        "Time": 1795267508.0,
    }

    refused = events.put_events(Entries=[{key: entry[key] for key in entry if key != "Time"}])
    body = json.dumps({"Entries": [entry]}).encode()
    urllib.request.urlopen(f"{embedded_aws.endpoints.aws}/_local/aws-events", body).close()

    assert refused["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException"
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
    event = json.loads(message["Body"])
    assert event["detail-type"] == entry["DetailType"]
    assert event["time"] == "2026-11-21T13:25:08Z"
    assert event["detail"] == {"instance-id": "i-1", "instance-action": "terminate"}


def test_policies_that_ask_for_tls_let_loopback_pass(embedded_aws) -> None:
    s3 = embedded_aws.client("s3")
    s3.create_bucket(Bucket="tls-only")
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": ["arn:aws:s3:::tls-only", "arn:aws:s3:::tls-only/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    s3.put_bucket_policy(Bucket="tls-only", Policy=json.dumps(policy))

    s3.put_object(Bucket="tls-only", Key="k", Body=b"v")


def read_by(aws):
    """Bytes that the processes of the embedded AWS have read so far, from disk or cache."""
    return sum(process.io_counters().read_chars for process in marked(Path(aws.endpoints.state)))


def test_of_a_large_object_only_the_range_is_read(embedded_aws) -> None:
    s3, content = embedded_aws.client("s3"), bytes(range(256)) * 65536
    s3.create_bucket(Bucket="ranges")
    s3.put_object(Bucket="ranges", Key="k", Body=content)
    before = read_by(embedded_aws)

    def part(asked):
        return s3.get_object(Bucket="ranges", Key="k", Range=asked)["Body"].read()

    assert part("bytes=1000-1999") == content[1000:2000]
    assert part("bytes=-5") == content[-5:]
    assert read_by(embedded_aws) - before < len(content)
    assert s3.get_object(Bucket="ranges", Key="k")["Body"].read() == content
    with pytest.raises(ClientError, match="InvalidRange"):
        part(f"bytes={len(content)}-")


def test_keys_that_nobody_issued_open_nothing(embedded_aws) -> None:
    stranger = embedded_aws.client(
        "sqs", aws_access_key_id="AKIASTRANGER00000001", aws_secret_access_key="guess"
    )

    with pytest.raises(ClientError, match=r"InvalidClientTokenId|Unrecognized"):
        stranger.list_queues()


def test_an_experiment_is_for_those_who_may_start_it(embedded_aws) -> None:
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    role = embedded_aws.client("iam").create_role(
        RoleName="onlooker",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )["Role"]["Arn"]
    keys = embedded_aws.client("sts").assume_role(RoleArn=role, RoleSessionName="onlooker")[
        "Credentials"
    ]
    credentials = {
        "aws_access_key_id": keys["AccessKeyId"],
        "aws_secret_access_key": keys["SecretAccessKey"],
        "aws_session_token": keys["SessionToken"],
    }

    with pytest.raises(ClientError, match="not authorized to perform: fis:StartExperiment"):
        embedded_aws.client("fis", **credentials).start_experiment(experimentTemplateId="EXT1")
    with pytest.raises(ClientError, match="ec2:CreateTags"):
        embedded_aws.client("ec2", address=embedded_aws.endpoints.aws, **credentials).create_tags(
            Resources=["i-1"], Tags=[{"Key": "drill", "Value": "contract"}]
        )
