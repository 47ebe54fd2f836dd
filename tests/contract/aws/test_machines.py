"""The port Machines on moto's EC2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws
from sluice.adapters.ec2_machines import EC2Machines
from sluice.core.migrations.interruption import NoticeKind, read_event

from tests.fakes import FakeClock

REGION, ACCOUNT = "us-east-1", "123456789012"


@pytest.fixture
def ec2() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client(
            "ec2", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none"
        )


def launched(ec2: Any, number: int) -> list[str]:
    (image, *_) = ec2.describe_images()["Images"]
    made = ec2.run_instances(ImageId=image["ImageId"], MinCount=number, MaxCount=number)
    return [each["InstanceId"] for each in made["Instances"]]


def test_only_machines_that_have_ended_are_told_and_in_ec2s_own_words(ec2: Any) -> None:
    running, ended, other = launched(ec2, 3)
    ec2.terminate_instances(InstanceIds=[ended, other])
    machines = EC2Machines(lambda: ec2, FakeClock())

    (event,) = machines.ended([running, ended, "i-0123456789abcdef0"])

    heard = read_event(event)
    assert isinstance(heard, list), heard
    (notice,) = heard
    assert (notice.kind, notice.instance) == (NoticeKind.TERMINATED, ended)
    assert (notice.account, notice.region) == (ACCOUNT, REGION)
    assert notice.at == FakeClock().now()


def test_more_machines_than_one_question_takes_are_asked_for_in_parts(ec2: Any) -> None:
    ended = launched(ec2, 3)
    ec2.terminate_instances(InstanceIds=ended)

    events = EC2Machines(lambda: ec2, FakeClock(), at_once=2).ended(ended)

    assert sorted(event["detail"]["instance-id"] for event in events) == sorted(ended)


def test_silence_of_ec2_proves_nothing() -> None:
    class Away:
        def get_paginator(self, name: str) -> Any:
            raise EndpointConnectionError(endpoint_url=name)

    away: Any = Away()
    assert EC2Machines(lambda: away, FakeClock()).ended(["i-1"]) == []
    assert EC2Machines(lambda: away, FakeClock()).clusters_of(["i-1"]) == {}


def test_an_instance_says_by_its_tags_of_which_clusters_it_is(ec2: Any) -> None:
    ours, owned, stranger = launched(ec2, 3)
    named = [{"Key": "eks:eks-cluster-name", "Value": "batch-1"}]
    ec2.create_tags(Resources=[ours], Tags=named)
    ec2.create_tags(Resources=[owned], Tags=[{"Key": "kubernetes.io/cluster/b", "Value": "owned"}])

    found = EC2Machines(lambda: ec2, FakeClock()).clusters_of([ours, owned, stranger])

    assert found == {ours: {"batch-1"}, owned: {"b"}, stranger: frozenset()}
