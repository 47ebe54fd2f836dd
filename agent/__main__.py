"""Command line of the node agent, which runs as a DaemonSet: one on every node.

    python -m agent --node NAME --repository HOST/NAME

A pod of this node that bears the annotation `sluice.dev/checkpoint-order` and the driver `kubelet`
is saved through the local kubelet. Its archive goes below the address in
`sluice.dev/checkpoint-to`, and as an image into the repository; the annotation
`sluice.dev/checkpoint-done` tells both, or why not. A pod with the driver `application` gets the
signal of `sluice.dev/checkpoint-signal`.

AWS is reached with the credentials and endpoints of the environment. Without --kubeconfig the
pod's service account is used; it needs get, list, watch and patch of pods, get of its node, and
create of nodes/checkpoint.
"""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

import boto3
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import BotoCoreError, ClientError
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from agent.kubelet import KUBELET_ROOT, Kubelet
from agent.program import Agent
from agent.registry import Repository
from agent.saving import Saver

ECR = ".dkr.ecr."


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agent",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--node", required=True, metavar="NAME")
    parser.add_argument("--repository", required=True, metavar="HOST/NAME")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument(
        "--kubelet-root", type=Path, default=KUBELET_ROOT, help="where its folder is mounted"
    )
    parser.add_argument(
        "--kubelet-ca", type=Path, help="default: the kubelet's own certificate in its folder"
    )
    return parser.parse_args(words)


def kubelet_of(given: argparse.Namespace, api: client.CoreV1Api) -> Kubelet:
    """Where the node itself says that its kubelet listens."""
    status = api.read_node(given.node).status
    address = next(one.address for one in status.addresses if one.type == "InternalIP")
    token = api.api_client.configuration.get_api_key_with_prefix("authorization") or ""
    return Kubelet(
        address=address,
        port=status.daemon_endpoints.kubelet_endpoint.port,
        authority=given.kubelet_ca or given.kubelet_root / "pki/kubelet.crt",
        root=given.kubelet_root,
        token=token.removeprefix("Bearer "),
    )


def repository_of(reference: str, session: boto3.Session) -> Repository:
    """With a fresh token where the repository is in ECR."""
    if ECR not in reference.partition("/")[0]:
        return Repository(reference)
    (data,) = session.client("ecr").get_authorization_token()["authorizationData"]
    return Repository(reference, f"Basic {data['authorizationToken']}")


def main() -> None:
    given = arguments_of(sys.argv[1:])
    if given.kubeconfig:
        config.load_kube_config(str(given.kubeconfig))
    else:
        config.load_incluster_config()
    api = client.CoreV1Api()
    session = boto3.Session(region_name=given.region)
    saver = Saver(
        kubelet=lambda: kubelet_of(given, api),
        uploads=session.client("s3"),
        repository=lambda: repository_of(given.repository, session),
        failures=(ApiException, BotoCoreError, ClientError, S3UploadFailedError),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=Agent(api, given.node, saver).run, args=(stop,), daemon=True).start()
    stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main()
