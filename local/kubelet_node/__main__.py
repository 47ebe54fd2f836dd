"""Command line of the `kubelet` node: every running instance becomes a real kubelet.

    python -m local.kubelet_node --kubeconfig FILE --ec2 URL --state DIR

Each running instance of the EC2 endpoint becomes a node of the cluster: a kubelet with containerd,
runc and CRIU on a Debian root file system, in namespaces of its own on this machine. It is as large
as its instance type says, whatever this machine has; what runs there shares the machine's.

- Images: `python` with any tag, from any registry, is Debian's Python; all others come from the
  registry that they name. A registry on loopback takes what the node agent pushes.
  Its user is root, so a pod that must not run as root has to name a user (`runAsUser`).
- Pods have a network of their own that leads nowhere: what listens on 127.0.0.1, the embedded AWS
  too, is out of their reach.
- There is no CSI driver, so pods with S3 volumes wait for ever; no GPU; no services and no DNS.
- A container is saved through the kubelet's checkpoint endpoint. A pod whose image was made from
  such a checkpoint goes on where that container stopped. The node agent, a DaemonSet here as on
  EKS, does the first when Sluice orders it; it finds its machine's metadata service at a port that
  all nodes share, below the node's name.

A node dies with its instance, and with this program, as if its power were cut. When the program is
started again with the same --state, machines that still run start again with their disks.

Needs Linux, root, gcc, and for the first time access to Debian's packages; what a machine
lacks is said in one line.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from local.errors import PreparationError
from local.kubelet_node import cgroups, debian
from local.kubelet_node.preparation import prepare
from local.kubelet_node.program import PORTS, Program, Settings
from local.modules import binary as built
from local.settings import default_cache


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def settings_of(arguments: list[str]) -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m local.kubelet_node",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--ec2", required=True, metavar="URL", help="EC2 endpoint")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument(
        "--instance-delay", type=float, default=0, metavar="SECONDS", help="from launch to joining"
    )
    parser.add_argument("--cluster-name", help="only instances tagged as owned by this cluster")
    parser.add_argument(
        "--client-ca", type=Path, help="whom to trust as API server; without it, no logs"
    )
    parser.add_argument(
        "--authority",
        type=Path,
        metavar="DIR",
        help="with ca.crt and ca.key of the cluster, which sign the kubelets' certificates; "
        "without it they sign their own",
    )
    parser.add_argument("--cgroup", metavar="NAME", help="default: made from --state")
    for name, what in (("registry", "images"), ("metadata", "metadata services")):
        parser.add_argument(f"--{name}-port", type=int, help=f"of the {what}; default: a free one")
    given = parser.parse_args(arguments)
    cache, state = default_cache(), given.state.resolve()
    return Settings(
        kubeconfig=given.kubeconfig.resolve(),
        ec2=given.ec2,
        state=state,
        region=given.region,
        base=debian.base(cache),
        pause=debian.layer(cache, "pause"),
        python=debian.layer(cache, "python"),
        kubelet=built(cache, "kubelet"),
        cgroup=given.cgroup or cgroups.name_of(state),
        instance_delay_seconds=given.instance_delay,
        cluster_name=given.cluster_name,
        client_ca=given.client_ca,
        authority=given.authority,
        ports={name: port for name in PORTS if (port := getattr(given, f"{name}_port"))},
    )


def main() -> None:
    settings = settings_of(sys.argv[1:])
    prepare(default_cache(), say)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    Program(settings).run(stop)


if __name__ == "__main__":
    os.umask(0o022)  # what other users' programs read below the nodes' roots
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        main()
    except PreparationError as failure:
        sys.exit(str(failure))
