"""One embedded AWS alone, and one whole stack, for the tests of this folder."""

import json
import os
import subprocess
import time
import urllib.request

import boto3
import pytest

from local import aws, stack
from local.apply import ApiServer
from local.certificates import make_certificates
from local.control_plane import authority_data
from local.endpoints import Endpoints
from local.ports import choose_ports
from local.settings import Layout, Settings, default_cache
from local.strays import MARK, kill_marked
from local.toolchain import environment

PATIENCE = 90.0


def eventually(happened, seconds=PATIENCE):
    """What `happened` returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)
    return found


class Aws:
    """Clients of the embedded AWS, as its owner or with other credentials."""

    def __init__(self, endpoints):
        self.endpoints = endpoints

    def client(self, service, *, address="", **credentials):
        owner = {
            "aws_access_key_id": self.endpoints.access_key_id,
            "aws_secret_access_key": self.endpoints.secret_access_key,
        }
        usual = self.endpoints.ec2 if service == "ec2" else self.endpoints.aws
        session = boto3.Session(region_name="us-east-1", **(credentials or owner))
        return session.client(service, endpoint_url=address or usual)

    def deploy(self, name, resources):
        """Create a CloudFormation stack and wait for its end; returns its status."""
        cloudformation = self.client("cloudformation")
        cloudformation.create_stack(
            StackName=name,
            TemplateBody=json.dumps({"Resources": resources}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )

        def ended():
            status = cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
            return None if status.endswith("IN_PROGRESS") else status

        return eventually(ended)

    def invoke(self, function, payload=None):
        answer = self.client("lambda").invoke(
            FunctionName=function, Payload=json.dumps(payload or {})
        )
        return json.loads(answer["Payload"].read())


@pytest.fixture(scope="session")
def embedded_aws(tmp_path_factory):
    """MiniStack behind our launcher, without a cluster."""
    state = tmp_path_factory.mktemp("aws")
    layout = Layout(state)
    settings = Settings(state, default_cache())
    ports = choose_ports(state / "ports.json", ["aws", "registry"], {})
    make_certificates(layout.certs)
    endpoints = Endpoints(
        aws=f"http://127.0.0.1:{ports['aws']}",
        ec2="http://127.0.0.1:9",
        region="us-east-1",
        account="123456789012",
        access_key_id="AKIASLUICECONTRACT01",
        secret_access_key="secret",
        kubeconfig="",
        cluster_name="batch-1",
        cluster_endpoint="https://127.0.0.1:6443",
        certificate_authority=authority_data(layout),
        state=str(state),
        path=os.environ["PATH"],
    )
    python = environment(settings.cache, "ministack", print) / "bin" / "python"
    part = aws.ministack(settings, endpoints, ports, python)
    environment_of_part = aws.base_environment(endpoints) | part.environment | {MARK: str(state)}
    with (state / "aws.log").open("w") as log:
        process = subprocess.Popen(
            part.command, env=environment_of_part, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        assert part.health is not None
        eventually(part.health.is_good)
        yield Aws(endpoints)
    finally:
        process.kill()
        process.wait()
        kill_marked(state)


class Stack(Aws):
    """A whole stack without the deployed functions."""

    def __init__(self, endpoints, state):
        super().__init__(endpoints)
        self.state = state
        self.layout = Layout(state)
        self.api = ApiServer(self.layout.kubeconfig)

    def market(self, method, route, body=None):
        request = urllib.request.Request(
            f"{self.endpoints.ec2}/_market/{route}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def instances(self):
        return {one["instanceId"]: one for one in self.market("GET", "instances")}

    def pods_of(self, job):
        path = f"/api/v1/namespaces/default/pods?labelSelector=job-name={job}"
        return self.api.call("GET", path)["items"]

    def apply(self, manifest):
        return self.api.apply(manifest)

    def instance_of(self, flavor):
        """The youngest instance that Karpenter bought for a flavor."""
        path = "/apis/karpenter.sh/v1/nodeclaims?labelSelector=sluice.dev/flavor=" + flavor
        claims = self.api.call("GET", path)["items"]
        provider = [claim.get("status", {}).get("providerID") for claim in claims]
        return provider[-1].rsplit("/", 1)[-1] if provider and provider[-1] else None

    def parts(self):
        return {part.name: part for part in stack.status(self.state)}


@pytest.fixture(scope="session")
def local_stack(tmp_path_factory):
    """A stack of its own, twenty times as fast in its spot warnings, started once."""
    state = tmp_path_factory.mktemp("stack")
    settings = Settings(state, default_cache(), nodes="simulated", time_scale=0.05)
    endpoints = stack.up(settings, print, deploy=False)
    yield Stack(endpoints, state)
    stack.down(state)
    assert stack.guards(Layout(state)) == []
