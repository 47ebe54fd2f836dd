"""Command line of the node agent, which runs as a DaemonSet: one on every node.

    python -m agent --node NAME --deployment NAME --cluster NAME

A pod of its nodes that bears the annotation `sluice.dev/checkpoint-order` and the driver `kubelet`
is saved through the kubelet. Its archive goes below the address in `sluice.dev/checkpoint-to`,
and as an image into the repository; the annotation `sluice.dev/checkpoint-done` tells both, or why
not. A pod with the driver `application` gets the signal of `sluice.dev/checkpoint-signal`.

With --node it also stores the logs of the pods of its node in S3 while they grow.

With a queue the agent also sends it what the instance metadata service says of the machine's end.
With --node it says by the node's label `sluice.dev/checkpoint` whether the node can save processes.

AWS is reached with the credentials and endpoints of the environment. Without --kubeconfig the
pod's service account is used (infra/agent.yaml has its rights).
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import urllib3
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import BotoCoreError, ClientError
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from agent import notices, support
from agent.kubelet import KUBELET_ROOT, Kubelet
from agent.logs import LogUploader
from agent.program import OrderController, ServedNodes
from agent.registry import Repository
from agent.saving import Saver

log = logging.getLogger(__name__)
ECR = ".dkr.ecr."
RETRY_SECONDS = 2.0
SERVICES = (ApiException, BotoCoreError, ClientError)


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agent",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    served = parser.add_mutually_exclusive_group(required=True)
    served.add_argument("--node", default="", metavar="NAME", help="serve this node")
    served.add_argument(
        "--label", default="", metavar="KEY=VALUE", help="serve all nodes with this label"
    )
    parser.add_argument(
        "--repository",
        metavar="HOST/NAME",
        help="where images go; without one, nodes restore from the archives themselves",
    )
    parser.add_argument("--region")
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument(
        "--kubelet-root", type=Path, default=KUBELET_ROOT, help="where its folder is mounted"
    )
    parser.add_argument(
        "--kubelet-ca", type=Path, help="default: the kubelet's own certificate in its folder"
    )
    parser.add_argument(
        "--loopback", action="store_true", help="kubelets on 127.0.0.1 need no known authority"
    )
    parser.add_argument("--notices-queue", metavar="URL")
    parser.add_argument(
        "--deployment", metavar="NAME", help="read repository and queue from its SSM parameters"
    )
    parser.add_argument("--cluster", default="", metavar="NAME", help="of the deployment")
    parser.add_argument("--account", default="", help="of the machines, in notices")
    parser.add_argument(
        "--metadata",
        default=os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", notices.ADDRESS),
        metavar="URL",
        help="default: $AWS_EC2_METADATA_SERVICE_ENDPOINT, else where EC2 has it",
    )
    return parser.parse_args(words)


def kubelet_of(given: argparse.Namespace, api: client.CoreV1Api, name: str) -> Kubelet:
    """Where the node itself says that its kubelet listens."""
    status = api.read_node(name).status
    address = next(one.address for one in status.addresses if one.type == "InternalIP")
    token = api.api_client.configuration.get_api_key_with_prefix("authorization") or ""
    own = None if given.loopback else given.kubelet_root / "pki/kubelet.crt"
    return Kubelet(
        address=address,
        port=status.daemon_endpoints.kubelet_endpoint.port,
        authority=given.kubelet_ca or own,
        root=given.kubelet_root,
        token=token.rpartition(" ")[2],  # "bearer TOKEN", in letters of either case
    )


def repository_of(reference: str | None, session: boto3.Session) -> Repository | None:
    """With a fresh token where the repository is in ECR."""
    if not reference:
        return None
    if ECR not in reference.partition("/")[0]:
        return Repository(reference)
    (data,) = session.client("ecr").get_authorization_token()["authorizationData"]
    return Repository(reference, f"Basic {data['authorizationToken']}")


def patiently(prepare: Callable[[], None], stop: threading.Event) -> None:
    """Until it succeeds: a booting node may lack its network, or the agent of Pod Identity.

    To end instead would let Kubernetes wait longer and longer before the next try.
    """
    while not stop.is_set():
        try:
            prepare()
        except (*SERVICES, urllib3.exceptions.HTTPError, notices.SilentError) as error:
            log.warning("not ready yet: %s", error)
            stop.wait(RETRY_SECONDS)
        else:
            return


def publish_support(api: client.CoreV1Api, node: str) -> None:
    runtime = api.read_node(node).status.node_info.container_runtime_version
    found = support.marks(support.why_not(runtime), closes=support.closes_connections())
    api.patch_node(node, {"metadata": found})


def listener_of(given: argparse.Namespace, session: boto3.Session) -> notices.Listener:
    sqs = session.client("sqs")

    def send(envelope: dict[str, Any]) -> None:
        sqs.send_message(QueueUrl=given.notices_queue, MessageBody=json.dumps(envelope))

    return notices.Listener(
        notices.Metadata(given.metadata),
        send,
        given.account,
        session.region_name or "",
        (BotoCoreError, ClientError),
    )


def find_region(given: argparse.Namespace) -> None:
    """That of the environment, which boto3 knows, else that of the machine."""
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        given.region = given.region or notices.Metadata(given.metadata).get("placement/region")


def find_addresses(given: argparse.Namespace, session: boto3.Session) -> None:
    """Fill in what a deployment publishes: its repository, its queue, and whose they are."""
    ssm = session.client("ssm")

    def published(name: str) -> str:
        found = ssm.get_parameter(Name=f"/{given.deployment}/{name}")
        return found["Parameter"]["Value"]

    given.repository = published(f"clusters/{given.cluster}/checkpoints")
    given.notices_queue = published("queues/notices")
    # https://sqs.REGION.amazonaws.com/ACCOUNT/NAME
    given.account = given.notices_queue.rsplit("/", 2)[1]


def main() -> None:
    given = arguments_of(sys.argv[1:])
    if given.kubeconfig:
        config.load_kube_config(str(given.kubeconfig))
    else:
        config.load_incluster_config()
    api = client.CoreV1Api()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    patiently(lambda: find_region(given), stop)
    session = boto3.Session(region_name=given.region)
    if given.deployment:
        patiently(lambda: find_addresses(given, session), stop)
    if given.node and not given.kubeconfig:
        patiently(lambda: publish_support(api, given.node), stop)
    if stop.is_set():
        return
    saver = Saver(
        kubelet=lambda node: kubelet_of(given, api, node),
        uploads=session.client("s3"),
        repository=lambda: repository_of(given.repository, session),
        failures=(*SERVICES, S3UploadFailedError),
    )
    # Process nodes store the logs of their pods themselves.
    logs = LogUploader(session.client("s3"), SERVICES) if given.node else None
    tasks = [OrderController(api, ServedNodes(given.node, given.label), saver, logs).run]
    if logs:
        tasks.append(logs.run)
    if given.notices_queue:
        tasks.append(listener_of(given, session).run)
    for task in tasks:
        threading.Thread(target=task, args=(stop,), daemon=True).start()
    stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main()
