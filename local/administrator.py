"""What the administrator of a cluster does once: apply the manifest that a deployed stack names."""

import re
from typing import Any

import boto3
import yaml

from local.apply import ApiServer, apply_all
from local.endpoints import Endpoints
from local.errors import StackError
from local.settings import Layout

OUTPUT = "Apply"  # of every cluster-access stack: a command that pipes an object into kubectl
OBJECT = re.compile(r"s3://(?P<bucket>[^/\s]+)/(?P<key>\S+)")


def give_access(endpoints: Endpoints, layout: Layout) -> int:
    """Apply the RBAC and admission policies of the deployed stacks; returns how many objects.

    Raises StackError when no stack names a manifest, ApplyError when the API server refuses one.
    """
    session = boto3.Session(
        aws_access_key_id=endpoints.access_key_id,
        aws_secret_access_key=endpoints.secret_access_key,
        region_name=endpoints.region,
    )
    manifests = deployed_manifests(session, endpoints.aws)
    if not manifests:
        raise StackError(f"no deployed stack has the output {OUTPUT}: nobody may use the cluster")
    apply_all(ApiServer(layout.kubeconfig), manifests)
    return len(manifests)


def deployed_manifests(session: boto3.Session, aws: str) -> list[dict[str, Any]]:
    s3 = session.client("s3", endpoint_url=aws)
    pages = session.client("cloudformation", endpoint_url=aws).get_paginator("describe_stacks")
    return [
        document
        for page in pages.paginate()
        for stack in page["Stacks"]
        for output in stack.get("Outputs", [])
        if output["OutputKey"] == OUTPUT and (found := OBJECT.search(output["OutputValue"]))
        for document in yaml.safe_load_all(
            s3.get_object(Bucket=found["bucket"], Key=found["key"])["Body"].read()
        )
        if document
    ]
