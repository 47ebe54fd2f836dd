"""Runs MiniStack, the embedded AWS, on 127.0.0.1 with the corrections that Sluice's stacks need.

Started by `local.aws` with the interpreter of MiniStack's own environment; it imports nothing of
ours. Settings come from the environment:

    GATEWAY_PORT, MINISTACK_ACCOUNT_ID, MINISTACK_REGION, AUTH, TMPDIR, STATE_DIR, S3_DATA_DIR
    LOCAL_EKS='{"batch-1": {"endpoint": "https://127.0.0.1:7443", "ca": "<base64 PEM>"}}'
    LOCAL_REGISTRY=127.0.0.1:5000

Every correction leans on private functions of one release, hence the version check, and each has
a contract test. Stop with SIGTERM: only a clean stop saves the state of PERSIST_STATE=1.
"""

# ruff: noqa: SLF001 - MiniStack offers no public way to any of this

import asyncio
import contextlib
import json
import mmap
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import uvicorn
from ministack import app as ministack_app
from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import set_request_account_id, set_request_region
from ministack.core.router import extract_access_key_id
from ministack.services import dynamodb, ecr, eks, eventbridge, lambda_svc, s3, scheduler
from ministack.services.cloudformation import provisioners

SUPPORTED = "1.5.33"
ACCOUNT = os.environ["MINISTACK_ACCOUNT_ID"]
MACHINES = os.environ.get("AWS_ENDPOINT_URL_EC2", "")
KEPT = ("content-type", "x-amzn-errortype")  # of an answer's headers
FIS_OPERATIONS = {
    ("POST", "experiments"): "StartExperiment",
    ("GET", "experiments"): "GetExperiment",
    ("DELETE", "experiments"): "StopExperiment",
    ("GET", "experimentTemplates"): "GetExperimentTemplate",
}
REGION = os.environ["MINISTACK_REGION"]
OK, BAD_REQUEST, NOT_FOUND = 200, 400, 404
EXPRESSIONS = 1024
LEAST_CONCURRENCY = 2  # of an event source mapping on AWS

Json = dict[str, Any]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]
Answer = tuple[int, dict[str, str], bytes]

# The last line of a Python traceback: "ValueError: text", "module.Error: text" or a bare name.
EXCEPTION_LINE = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
# Access key and service in the header of a signed request.
CREDENTIAL = re.compile(r"Credential=([^/]+)/[^/]+/[^/]+/([^/]+)/")


def report_exception_classes() -> None:
    """Replace the constant "Runtime.HandlerError" by the class in the worker's traceback."""
    execute = lambda_svc._execute_function_warm

    def execute_with_class(function: Json, event: Json, request_id: str) -> Json:
        result: Json = execute(function, event, request_id)
        body = result.get("body")
        if (
            result.get("error")
            and isinstance(body, dict)
            and body.get("errorType") == "Runtime.HandlerError"
        ):
            for line in reversed((result.get("log") or "").splitlines()):
                if match := EXCEPTION_LINE.match(line):
                    body["errorType"] = match.group(1).rsplit(".", 1)[-1]
                    break
        return result

    lambda_svc._execute_function_warm = execute_with_class


def apply_dropped_function_properties() -> None:
    """Set the two function properties that the CloudFormation handler leaves out.

    A dead letter queue then receives a destination envelope; AWS delivers the raw event.
    """
    handlers = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    create, update = handlers["create"], handlers["update"]

    def apply(function_name: str, properties: Json) -> None:
        function = lambda_svc._functions.get(function_name)
        if not function:
            return
        reserved = properties.get("ReservedConcurrentExecutions")
        function["concurrency"] = None if reserved is None else int(reserved)
        if properties.get("DeadLetterConfig"):
            function["config"]["DeadLetterConfig"] = properties["DeadLetterConfig"]

    def create_function(logical_id: str, properties: Json, stack: str) -> Any:
        result = create(logical_id, properties, stack)
        apply(result[0], properties)
        return result

    def update_function(
        physical_id: str, old: Json, new: Json, stack: str, *rest: Any, **options: Any
    ) -> Any:
        result = update(physical_id, old, new, stack, *rest, **options)
        apply(result[0], new)
        return result

    handlers["create"], handlers["update"] = create_function, update_function


def point_at_external_clusters(clusters: Json) -> None:
    """Answer DescribeCluster with our own endpoint and CA for the clusters named in LOCAL_EKS."""
    eks._docker_available = False  # never a cluster in a container behind the user's back
    sanitize = eks._sanitize

    def sanitize_with_endpoint(record: Json) -> Json:
        cluster: Json = sanitize(record)
        external = clusters.get(cluster["name"])
        if not external:
            return cluster
        return {
            **cluster,
            "endpoint": external["endpoint"],
            "certificateAuthority": {"data": external["ca"]},
        }

    eks._sanitize = sanitize_with_endpoint


def register_external_clusters(clusters: Json) -> None:
    """Let the clusters of LOCAL_EKS exist, unless a kept state already has them."""
    set_request_account_id(ACCOUNT)
    set_request_region(REGION)
    for name, external in clusters.items():
        if name not in eks._clusters:
            status, _, body = eks._create_cluster(
                {
                    "name": name,
                    "version": external["version"],
                    "roleArn": "",  # no role stands behind a cluster that EKS does not run
                    "accessConfig": {"authenticationMode": "API"},
                }
            )
            if status >= BAD_REQUEST:
                raise ValueError(f"Cluster {name} could not be registered: {body!r}")


def create_access_entries_by_cloudformation() -> None:
    """Add the resource type AWS::EKS::AccessEntry, which MiniStack's CloudFormation lacks."""

    def fields(properties: Json) -> Json:
        return {
            "principalArn": properties["PrincipalArn"],
            "kubernetesGroups": properties.get("KubernetesGroups", []),
            "type": properties.get("Type", "STANDARD"),
            "username": properties.get("Username", ""),
            "tags": provisioners._tag_map(properties.get("Tags")),
        }

    def checked(answer: tuple[int, Json, bytes]) -> Json:
        status, _, body = answer
        if status >= BAD_REQUEST:
            raise ValueError(f"AWS::EKS::AccessEntry failed: {body!r}")
        document: Json = json.loads(body)
        return document

    def create(_logical_id: str, properties: Json, _stack: str) -> tuple[str, Json]:
        cluster, body = properties["ClusterName"], fields(properties)
        entry = checked(eks._create_access_entry(cluster, body))["accessEntry"]
        return f"{body['principalArn']}|{cluster}", {"AccessEntryArn": entry["accessEntryArn"]}

    def update(
        physical_id: str, old: Json, new: Json, stack: str, logical_id: str = ""
    ) -> tuple[str, Json]:
        replaced = any(
            old.get(key) != new.get(key) for key in ("ClusterName", "PrincipalArn", "Type")
        )
        if replaced:
            created = create(logical_id, new, stack)
            if created[0] != physical_id:
                delete(physical_id, old)
            return created
        answer = eks._update_access_entry(new["ClusterName"], new["PrincipalArn"], fields(new))
        return physical_id, {"AccessEntryArn": checked(answer)["accessEntry"]["accessEntryArn"]}

    def delete(_physical_id: str, properties: Json) -> None:
        answer = eks._delete_access_entry(properties["ClusterName"], properties["PrincipalArn"])
        if answer[0] != NOT_FOUND:
            checked(answer)

    provisioners._RESOURCE_HANDLERS["AWS::EKS::AccessEntry"] = {
        "create": create,
        "update": update,
        "update_with_logical_id": True,
        "delete": delete,
    }


def create_pod_identity_associations_by_cloudformation() -> None:
    """Add the resource type AWS::EKS::PodIdentityAssociation, which its CloudFormation lacks."""

    def create(_logical_id: str, properties: Json, _stack: str) -> tuple[str, Json]:
        body = {
            "namespace": properties["Namespace"],
            "serviceAccount": properties["ServiceAccount"],
            "roleArn": properties["RoleArn"],
        }
        status, _, answer = eks._create_pod_identity_association(properties["ClusterName"], body)
        if status >= BAD_REQUEST:
            raise ValueError(f"AWS::EKS::PodIdentityAssociation failed: {answer!r}")
        association = json.loads(answer)["association"]
        attributes = {
            "AssociationArn": association["associationArn"],
            "AssociationId": association["associationId"],
        }
        return association["associationArn"], attributes

    def update(
        physical_id: str, old: Json, new: Json, stack: str, logical_id: str = ""
    ) -> tuple[str, Json]:
        if old == new:
            return physical_id, {"AssociationArn": physical_id}
        delete(physical_id, old)
        return create(logical_id, new, stack)

    def delete(physical_id: str, properties: Json) -> None:
        status, _, answer = eks._delete_pod_identity_association(
            properties["ClusterName"], physical_id.rpartition("/")[2]
        )
        if status not in (OK, NOT_FOUND):
            raise ValueError(f"AWS::EKS::PodIdentityAssociation stays: {answer!r}")

    provisioners._RESOURCE_HANDLERS["AWS::EKS::PodIdentityAssociation"] = {
        "create": create,
        "update": update,
        "update_with_logical_id": True,
        "delete": delete,
    }


def create_experiment_templates_by_cloudformation() -> None:
    """Add the resource type AWS::FIS::ExperimentTemplate; FIS is where EC2 is."""

    def client() -> Any:
        return boto3.client("fis", region_name=REGION, endpoint_url=MACHINES)

    def create(_logical_id: str, properties: Json, _stack: str) -> tuple[str, Json]:
        made = client().create_experiment_template(
            description=properties["Description"],
            roleArn=properties["RoleArn"],
            stopConditions=[in_camel_case(one) for one in properties["StopConditions"]],
            targets={
                name: in_camel_case(target)
                | {"filters": [in_camel_case(one) for one in target.get("Filters", [])]}
                for name, target in properties.get("Targets", {}).items()
            },
            actions={name: in_camel_case(one) for name, one in properties["Actions"].items()},
            tags=provisioners._tag_map(properties.get("Tags")),
        )["experimentTemplate"]
        return made["id"], {"Id": made["id"]}

    def update(
        physical_id: str, old: Json, new: Json, stack: str, logical_id: str = ""
    ) -> tuple[str, Json]:
        if old == new:
            return physical_id, {"Id": physical_id}
        delete(physical_id, old)
        return create(logical_id, new, stack)

    def delete(physical_id: str, _properties: Json) -> None:
        fis = client()
        with contextlib.suppress(fis.exceptions.ResourceNotFoundException):
            fis.delete_experiment_template(id=physical_id)

    provisioners._RESOURCE_HANDLERS["AWS::FIS::ExperimentTemplate"] = {
        "create": create,
        "update": update,
        "update_with_logical_id": True,
        "delete": delete,
    }


def in_camel_case(properties: Json) -> Json:
    """CloudFormation's names of properties as the API has them; what they hold stays."""
    return {name[0].lower() + name[1:]: value for name, value in properties.items()}


def keep_images_on_loopback(registry: str) -> None:
    """Let repositories of ECR be those of the registry that the nodes of this machine pull from."""
    if registry:
        ecr._repo_uri = lambda name: f"{registry}/{name}"


def name_the_caller_of_function_urls() -> None:
    """Give events of IAM-signed function URLs `requestContext.authorizer.iam`, as AWS does."""
    build = lambda_svc._build_function_url_event

    def build_with_caller(*positional: Any, **named: Any) -> Json:
        event: Json = build(*positional, **named)
        headers, query = positional[5], positional[7]
        caller = iam_evaluator.resolve_caller_identity(extract_access_key_id(headers, query))
        if caller and not named.get("anonymous"):
            event["requestContext"]["authorizer"] = {
                "iam": {
                    "accessKey": caller["accessKey"],
                    "accountId": caller["accountId"],
                    "callerId": caller["userId"],
                    "cognitoIdentity": None,
                    "principalOrgId": caller["principalOrgId"],
                    "userArn": caller["userArn"],
                    "userId": caller["userId"],
                }
            }
        return event

    lambda_svc._build_function_url_event = build_with_caller


def count_loopback_as_secure_transport() -> None:
    """Let policies that deny unless `aws:SecureTransport` stand: no wire is left to tap here."""
    pin = ministack_app.pin_request_origin
    ministack_app.pin_request_origin = lambda source_ip, _secure: pin(source_ip, True)


def check_sqs_batches_as_aws_does() -> None:
    """IAM has no action for a batch of SQS calls: the single call's right covers it."""
    extract = iam_actions.extract_iam_action

    def extract_single(service: str, *positional: Any, **named: Any) -> Any:
        action = extract(service, *positional, **named)
        if service == "sqs" and action and action.endswith("Batch"):
            return action.removesuffix("Batch")
        return action

    iam_actions.extract_iam_action = extract_single


def read_each_expression_once() -> None:
    """Keep what was read of DynamoDB expressions: a query reads its own again for every item."""
    tokens = lru_cache(EXPRESSIONS)(dynamodb._tokenize)
    dynamodb._tokenize = lambda expression: list(tokens(expression))
    dynamodb._condition_syntax_error = lru_cache(EXPRESSIONS)(dynamodb._condition_syntax_error)


def begin_streams_anew_after_a_stop() -> None:
    """Let kept readers of DynamoDB streams start at the beginning: the records are not kept.

    Their kept positions lie beyond a stream that is empty again, and so many records as they count
    would never be read.
    """
    restore = lambda_svc._restore_esm_positions

    def restore_but_streams(store: Any, positions: Any) -> None:
        restore(store, positions)
        if store is lambda_svc._dynamodb_stream_positions:
            for mapping in store._data:
                store._data[mapping] = 0

    lambda_svc._restore_esm_positions = restore_but_streams


def read_no_more_of_an_object_than_is_asked_for() -> None:
    """Map an object for a range of it: the whole is read otherwise, while all other calls wait.

    Clients ask for a checkpoint of a gigabyte in 8 MiB ranges, ten at a time.
    """
    get_object, read = s3._get_object, s3._read_body
    ranged: ContextVar[bool] = ContextVar("ranged", default=False)

    def get_ranged(bucket: str, key: str, headers: Json, *query: Any) -> Any:
        token = ranged.set("range" in headers)
        try:
            return get_object(bucket, key, headers, *query)
        finally:
            ranged.reset(token)

    def read_mapped(bucket: str, key: str, record: Json) -> Any:
        path = s3._object_disk_path(bucket, key)
        if ranged.get() and record["size"] and record.get("body") is None and path:
            with contextlib.suppress(FileNotFoundError), Path(path).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # slices are bytes
        return read(bucket, key, record)

    s3._get_object, s3._read_body = get_ranged, read_mapped


def invoke_no_more_at_once_than_there_are_cores() -> None:
    """For one queue: more invocations share the cores, each after a cold start, for less each."""
    lambda_svc._ESM_SQS_DEFAULT_CONCURRENCY = min(
        lambda_svc._ESM_SQS_DEFAULT_CONCURRENCY, max(LEAST_CONCURRENCY, os.cpu_count() or 1)
    )


def put_aws_events(body: bytes) -> tuple[int, bytes]:
    """Publish events with a source such as "aws.ec2", which an ordinary PutEvents refuses.

    The body is that of PutEvents; `Time`, in seconds since the epoch, becomes the event's time,
    where PutEvents of MiniStack always takes the present.
    """
    set_request_account_id(ACCOUNT)
    set_request_region(REGION)
    published = []
    for entry in json.loads(body)["Entries"]:
        event = {
            "EventId": str(uuid.uuid4()),
            "Source": entry["Source"],
            "DetailType": entry["DetailType"],
            "Detail": entry["Detail"],
            "EventBusName": entry.get("EventBusName", "default"),
            "Time": int(entry.get("Time", time.time())),
            "Resources": entry.get("Resources", []),
            "Account": ACCOUNT,
            "Region": REGION,
        }
        eventbridge._dispatch_event(event)
        eventbridge._archive_event(event)
        published.append({"EventId": event["EventId"]})
    return 200, json.dumps({"FailedEntryCount": 0, "Entries": published}).encode()


def operation_of(scope: Json) -> str:
    """Who calls what: access key and operation, such as `ASIA… DynamoDB_20120810.GetItem`."""
    headers = dict(scope["headers"])
    signed = CREDENTIAL.search(headers.get(b"authorization", b"").decode("latin-1"))
    key, service = (signed[1], signed[2]) if signed else ("-", "-")
    target = headers.get(b"x-amz-target", b"").decode("latin-1")
    return f"{key} {target or service + ' ' + scope['method']}"


def service_of(scope: Json) -> str:
    signed = CREDENTIAL.search(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
    return signed[2] if signed else ""


def ask_machines(scope: Json, body: bytes) -> Answer:
    """Pass a call on to the embedded EC2 and FIS, if its caller has the right.

    MiniStack's own EC2 knows no market, and it has no FIS.
    """
    service = service_of(scope)
    if service == "ec2":
        operation = parse_qs(body.decode()).get("Action", [""])[0]
    else:
        operation = FIS_OPERATIONS.get((scope["method"], scope["path"].split("/")[1]), "")
    headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
    query = parse_qs(scope["query_string"].decode())
    denied = ministack_app._enforce_data_plane(
        service, f"{service}:{operation}", headers, query, str(uuid.uuid4())
    )
    if denied:
        refused: Answer = denied
        return refused
    url = MACHINES + scope["path"] + ("?" + scope["query_string"].decode() if query else "")
    kept = {k: v for k, v in headers.items() if k not in {"host", "content-length"}}
    request = urllib.request.Request(url, body or None, kept, method=scope["method"])
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


async def read_body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


def application(clusters: Json) -> Callable[[Json, Receive, Send], Awaitable[None]]:
    """MiniStack's ASGI application with the clusters, another EC2, and two routes of ours.

    `POST /_local/aws-events` publishes events of AWS; `GET /_local/calls` tells how often each
    caller has called each operation.
    """
    calls: Counter[str] = Counter()

    async def app(scope: Json, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":

            async def send_with_clusters(message: Json) -> None:
                if message["type"] == "lifespan.startup.complete":
                    register_external_clusters(clusters)
                await send(message)

            await ministack_app.app(scope, receive, send_with_clusters)
            return
        route = (scope.get("method"), scope["path"]) if scope["type"] == "http" else None
        headers: dict[str, str] = {}
        if route == ("POST", "/_local/aws-events"):
            status, answer = await asyncio.to_thread(put_aws_events, await read_body(receive))
        elif route == ("GET", "/_local/calls"):
            status, answer = 200, json.dumps(calls).encode()
        else:
            if route:
                calls[operation_of(scope)] += 1
            if not (MACHINES and route and service_of(scope) in ("ec2", "fis")):
                await ministack_app.app(scope, receive, send)
                return
            status, headers, answer = await asyncio.to_thread(
                ask_machines, scope, await read_body(receive)
            )
        kept = [(k.lower().encode(), v.encode()) for k, v in headers.items() if k.lower() in KEPT]
        await send({"type": "http.response.start", "status": status, "headers": kept})
        await send({"type": "http.response.body", "body": answer})

    return app


def main() -> None:
    if version("ministack") != SUPPORTED:
        sys.exit(
            f"This launcher fits MiniStack {SUPPORTED}; rerun its contract tests before moving on."
        )
    clusters = json.loads(os.environ.get("LOCAL_EKS", "{}"))
    report_exception_classes()
    apply_dropped_function_properties()
    create_access_entries_by_cloudformation()
    create_pod_identity_associations_by_cloudformation()
    create_experiment_templates_by_cloudformation()
    keep_images_on_loopback(os.environ.get("LOCAL_REGISTRY", ""))
    point_at_external_clusters(clusters)
    name_the_caller_of_function_urls()
    count_loopback_as_secure_transport()
    check_sqs_batches_as_aws_does()
    read_each_expression_once()
    begin_streams_anew_after_a_stop()
    read_no_more_of_an_object_than_is_asked_for()
    invoke_no_more_at_once_than_there_are_cores()
    scheduler._SCHEDULE_TICK_INTERVAL = 1  # its 10 s would make every schedule late
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn raises it again once it is done
    uvicorn.run(
        application(clusters),
        host="127.0.0.1",  # never 0.0.0.0: whoever reaches the port can run code as this user
        port=int(os.environ["GATEWAY_PORT"]),
        http="httptools",  # MiniStack's own server needs more for HTTP than for most calls
        lifespan="on",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=3,
        server_header=False,
        date_header=False,  # MiniStack adds its own
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
