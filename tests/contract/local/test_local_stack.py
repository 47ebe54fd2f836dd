"""The parts together: Karpenter buys from the market, tokens open the cluster, nothing stays."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error

import botocore.session
import psutil
import pytest
from botocore.credentials import Credentials
from botocore.model import ServiceId
from botocore.signers import RequestSigner
from conftest import eventually

from local import stack
from local.errors import StackError
from local.settings import Layout, Settings
from local.strays import marked

pytestmark = [pytest.mark.stack, pytest.mark.slow]

LISTENING = re.compile(r"^127\.")


def a_job(name, flavor, *, cpu="4", suspend=True):
    container = {
        "name": "main",
        "image": "none",
        "command": ["true"],
        "resources": {"requests": {"cpu": cpu}},
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"sluice.dev/flavor": flavor},
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"suspend": suspend, "template": {"spec": pod}},
    }


def test_every_part_is_ready_and_listens_on_loopback_only(local_stack) -> None:
    parts = local_stack.parts()

    assert {part.state for part in parts.values()} == {"ready"}
    for part in parts.values():
        process = psutil.Process(part.pid)
        for connection in [*process.net_connections(), *children_connections(process)]:
            if connection.status == psutil.CONN_LISTEN:
                assert LISTENING.match(connection.laddr.ip) or connection.laddr.ip == "::1", part


def children_connections(process):
    return [one for child in process.children(recursive=True) for one in child.net_connections()]


def test_a_second_up_finds_the_first(local_stack) -> None:
    said = []
    settings = Settings.read(local_stack.layout.settings)

    endpoints = stack.up(settings, said.append, deploy=False)

    assert endpoints == local_stack.endpoints
    assert "the stack runs already" in said


def test_nothing_is_bought_for_a_suspended_job_and_the_cheapest_for_a_running_one(
    local_stack,
) -> None:
    known = set(local_stack.instances())
    local_stack.apply(a_job("first", "spot", cpu="12"))
    assert local_stack.pods_of("first") == []
    assert set(local_stack.instances()) == known

    local_stack.apply(a_job("first", "spot", cpu="12", suspend=False))

    instance = eventually(lambda: next(iter(set(local_stack.instances()) - known), None))
    bought = local_stack.instances()[instance]
    assert bought["type"] == "c5.4xlarge"
    assert bought["capacityType"] == "spot"
    assert bought["zone"] == "us-east-1c"  # the cheapest of the three
    eventually(lambda: joined(local_stack, instance))


def joined(local_stack, instance):
    nodes = local_stack.api.call("GET", "/api/v1/nodes")["items"]
    return any(node["spec"].get("providerID", "").endswith(instance) for node in nodes)


def test_a_spot_warning_comes_on_both_channels_and_is_kept(local_stack) -> None:
    sqs, events = local_stack.client("sqs"), local_stack.client("events")
    url = sqs.create_queue(QueueName="warnings")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    events.put_rule(Name="warnings", EventPattern=json.dumps({"source": ["aws.ec2"]}))
    events.put_targets(Rule="warnings", Targets=[{"Id": "q", "Arn": arn["QueueArn"]}])
    local_stack.apply(a_job("doomed", "spot", suspend=False))
    instance = eventually(lambda: running_spot_instance(local_stack))

    answer = local_stack.market(
        "POST", "interrupt", {"instanceId": instance, "rebalanceSeconds": 10}
    )
    notice = eventually(lambda: notice_of(local_stack, instance))
    eventually(lambda: state_of(local_stack, instance) == "terminated")

    assert notice == {"action": "terminate", "time": answer["reclaimTime"]}
    kinds = eventually(lambda: all_four(sqs, url, instance, []))
    assert kinds[:2] == [
        "EC2 Instance Rebalance Recommendation",
        "EC2 Spot Instance Interruption Warning",
    ]


def running_spot_instance(local_stack):
    for one in local_stack.market("GET", "instances"):
        if one["state"] == "running" and one["capacityType"] == "spot":
            return one["instanceId"]
    return None


def state_of(local_stack, instance):
    states = {one["instanceId"]: one["state"] for one in local_stack.market("GET", "instances")}
    return states[instance]


def notice_of(local_stack, instance):
    try:
        return local_stack.market("GET", f"instances/{instance}/notice")
    except urllib.error.HTTPError:  # 404 until the warning, as in the instance's metadata
        return None


def all_four(sqs, url, instance, seen):
    """The kinds of this instance's events once the last of them, its end, is there."""
    while messages := sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1
    ).get("Messages"):
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            event = json.loads(message["Body"])
            if event["detail"]["instance-id"] == instance:
                seen.append((event["detail-type"], event["detail"].get("state")))
    states = [state for kind, state in seen if state in ("shutting-down", "terminated")]
    kinds = [kind for kind, state in seen if state is None]
    return kinds if states == ["shutting-down", "terminated"] else None


def test_a_sold_out_zone_makes_karpenter_buy_elsewhere(local_stack) -> None:
    known = set(local_stack.instances())
    for zone in ("us-east-1a", "us-east-1c"):
        local_stack.market("POST", "sold-out", {"zone": zone, "seconds": 600})
    try:
        local_stack.apply(a_job("elsewhere", "on-demand", cpu="12", suspend=False))
        instance = eventually(lambda: next(iter(set(local_stack.instances()) - known), None))
    finally:
        local_stack.market("DELETE", "sold-out")

    assert local_stack.instances()[instance]["zone"] == "us-east-1b"


def test_only_spot_instances_are_interrupted(local_stack) -> None:
    local_stack.apply(a_job("steady", "on-demand", suspend=False))
    instance = eventually(lambda: local_stack.instance_of("on-demand"))

    with pytest.raises(urllib.error.HTTPError) as refused:
        local_stack.market("POST", "interrupt", {"instanceId": instance})

    assert refused.value.code == 400
    assert "spot instances only" in refused.value.read().decode()


TEMPLATE = {
    "Type": "AWS::FIS::ExperimentTemplate",
    "Properties": {
        "Description": "the machine with the tag",
        "RoleArn": "arn:aws:iam::123456789012:role/drills",
        "StopConditions": [{"Source": "none"}],
        "Targets": {
            "machine": {
                "ResourceType": "aws:ec2:spot-instance",
                "SelectionMode": "COUNT(1)",
                "ResourceTags": {"drill": "contract"},
                "Filters": [{"Path": "State.Name", "Values": ["running"]}],
            }
        },
        "Actions": {
            "interrupt": {
                "ActionId": "aws:ec2:send-spot-instance-interruptions",
                "Parameters": {"durationBeforeInterruption": "PT2M"},
                "Targets": {"SpotInstances": "machine"},
            }
        },
        "Tags": {"Name": "contract"},
    },
}


def ended(fis, experiment):
    found = fis.get_experiment(id=experiment)["experiment"]
    return found if found["state"]["status"] in ("completed", "failed") else None


def test_an_experiment_of_a_deployed_template_takes_the_tagged_spot_instance(local_stack) -> None:
    fis = local_stack.client("fis")
    ec2 = local_stack.client("ec2", address=local_stack.endpoints.aws)
    assert local_stack.deploy("drills", {"Template": TEMPLATE}) == "CREATE_COMPLETE"
    template = local_stack.client("cloudformation").describe_stack_resource(
        StackName="drills", LogicalResourceId="Template"
    )["StackResourceDetail"]["PhysicalResourceId"]

    nobody = fis.start_experiment(experimentTemplateId=template)["experiment"]["id"]
    state = eventually(lambda: ended(fis, nobody))["state"]
    assert (state["status"], "empty set" in state["reason"]) == ("failed", True)

    local_stack.apply(a_job("drilled", "spot", suspend=False))
    instance = eventually(lambda: running_spot_instance(local_stack))
    ec2.create_tags(Resources=[instance], Tags=[{"Key": "drill", "Value": "contract"}])
    begun = fis.start_experiment(experimentTemplateId=template)["experiment"]
    assert begun["state"]["status"] == "pending"

    assert eventually(lambda: notice_of(local_stack, instance))["action"] == "terminate"
    assert eventually(lambda: ended(fis, begun["id"]))["state"]["status"] == "completed"
    eventually(lambda: state_of(local_stack, instance) == "terminated")


def a_token(local_stack, role, cluster):
    """An EKS token of a session of the role, made as the adapter of the functions makes it."""
    session = local_stack.client("sts").assume_role(RoleArn=role, RoleSessionName="contract")
    keys = session["Credentials"]
    signer = RequestSigner(
        ServiceId("sts"),
        "us-east-1",
        "sts",
        "v4",
        Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]),
        botocore.session.get_session().get_component("event_emitter"),
    )
    request = {
        "method": "GET",
        "url": "https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, expires_in=60, operation_name="")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


@pytest.fixture(scope="module")
def role(local_stack):
    """A role with an access entry in the group `sluice:contract`, which may list pods."""
    name = "arn:aws:iam::123456789012:root"
    trust = {"Effect": "Allow", "Principal": {"AWS": name}, "Action": "sts:AssumeRole"}
    role = local_stack.client("iam").create_role(
        RoleName="contract",
        Path="/team/",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )["Role"]["Arn"]
    local_stack.client("eks").create_access_entry(
        clusterName="batch-1", principalArn=role, kubernetesGroups=["sluice:contract"]
    )
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    local_stack.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "contract"},
            "rules": rules,
        }
    )
    local_stack.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "contract"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "contract",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Group",
                    "name": "sluice:contract",
                }
            ],
        }
    )
    return role


def status_with(local_stack, token, path):
    server = type(local_stack.api)(local_stack.layout.kubeconfig)
    server.token = token
    try:
        server.call("GET", path)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    return 200, ""


def test_a_role_has_the_rights_of_its_access_entrys_groups_and_no_others(local_stack, role) -> None:
    token = a_token(local_stack, role, "batch-1")

    allowed, _ = status_with(local_stack, token, "/api/v1/namespaces/team-blue/pods")
    denied, reason = status_with(local_stack, token, "/api/v1/nodes")

    assert allowed == 200
    assert denied == 403
    assert "assumed-role/contract/contract" in reason
    assert 'cannot list resource \\"nodes\\"' in reason


def test_a_token_for_another_cluster_or_without_an_entry_opens_nothing(local_stack, role) -> None:
    other_cluster = a_token(local_stack, role, "batch-2")
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    stranger = local_stack.client("iam").create_role(
        RoleName="stranger",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )["Role"]["Arn"]

    path = "/api/v1/namespaces/team-blue/pods"
    assert status_with(local_stack, other_cluster, path)[0] == 401
    assert status_with(local_stack, a_token(local_stack, stranger, "batch-1"), path)[0] == 401


@pytest.mark.parametrize("part", ["karpenter", "kube-apiserver", "etcd", "nodes", "webhook"])
def test_a_part_that_is_killed_is_back_and_the_stack_works(local_stack, part) -> None:
    before = local_stack.parts()[part].pid

    os.kill(before, signal.SIGKILL)
    eventually(lambda: local_stack.parts()[part].pid not in (None, before))
    eventually(lambda: {one.state for one in local_stack.parts().values()} == {"ready"})

    local_stack.apply(a_job(f"after-{part}", "spot"))


def test_a_part_can_be_stopped_for_a_while(local_stack) -> None:
    stack.stop_part(local_stack.state, "karpenter")
    assert local_stack.parts()["karpenter"].state == "stopped"

    stack.start_part(local_stack.state, "karpenter")
    assert local_stack.parts()["karpenter"].state == "ready"


def test_a_part_that_would_lose_its_memory_is_not_restarted(local_stack) -> None:
    with pytest.raises(StackError, match="aws keeps its memory to itself"):
        stack.restart_part(local_stack.state, "aws")


UP = "import sys; from local import stack; from local.settings import *; \
stack.up(Settings(Path(sys.argv[1]), default_cache(), nodes='simulated'), print, deploy=False)"


def start_up(state):
    """`up` in a process of its own, once its first part is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", UP, str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell's background job, which this may run in, begins with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "is ready" in line:
            break
    return process


def no_process_left(state):
    return not stack.guards(Layout(state)) and not marked(state)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_up_that_is_interrupted_leaves_nothing_behind(tmp_path, number) -> None:
    process = start_up(tmp_path)

    process.send_signal(number)
    process.communicate()

    eventually(lambda: no_process_left(tmp_path))


def test_whatever_of_the_supervisor_is_killed_nothing_stays_and_the_next_up_works(tmp_path) -> None:
    for victims in (slice(0, 1), slice(1, 2), slice(0, 2)):  # guard, supervisor, both
        start_up(tmp_path).communicate()
        assert {part.state for part in stack.status(tmp_path)} == {"ready"}

        for process in stack.guards(Layout(tmp_path))[victims]:
            process.kill()

        eventually(lambda: no_process_left(tmp_path))
