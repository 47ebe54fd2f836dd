"""Command line of the `process` node: one program makes every running instance a node.

    python -m local.node --kubeconfig FILE --ec2 URL --aws URL --state DIR

Each running instance of the EC2 endpoint becomes a Kubernetes node; the pods bound to it run as
processes of the user who runs this program. What that means for a pod:

- The image is ignored; `python` and `python3` are the interpreter that runs this program.
- With root on Linux a container has mount, PID, IPC and UTS namespaces and a root of its own: the
  machine's programs and libraries, read only, below a layer that takes what the container writes.
  Home folders, /tmp and the state of the stack are hidden. Volumes are mounted where the manifest
  says, read-only ones cannot be written, and io_uring is refused as under containerd's profile.
- Without root, or where overlayfs does not work, nothing is isolated: a pod can read and write
  what the user can. A volume is a folder, and every occurrence of its mountPath in command, args,
  environment values and workingDir is rewritten to that folder. A path inside the program's own
  code is not rewritten, and read-only volumes can be written. The node's annotation
  `sluice.dev/isolation-reason` says why.
- A volume's path is also in SLUICE_VOLUME_<NAME>.
- A PersistentVolume of the S3 driver is a folder synchronised with its prefix; see s3_volume.py.
- Nothing limits CPU or memory, and pods share the machine's loopback network.
- Whatever else is not supported fails the pod with the reason UnsupportedByProcessNode.

With isolation and CRIU 4 (install_criu.sh), a pod annotated
`sluice.dev/checkpoint-driver: kubelet` can be saved through the kubelet's checkpoint endpoint, and
a pod annotated `sluice.dev/restore-from: s3://BUCKET/KEY` (or a path) goes on from there, with the
memory, files, environment and host name of the saved one. The node's label `sluice.dev/checkpoint`
says whether it can; the annotation `sluice.dev/checkpoint-reason` why not. Established TCP
connections are closed by that, unless `sluice.dev/checkpoint-connections: refuse` asks for no
checkpoint then.

With `--runtime simulated` a pod is no process: it lasts as long as its annotation
`sluice.dev/simulated-duration` says (seconds, default 0) and ends with
`sluice.dev/simulated-exit-code`.

No process outlives this program, however it ends; pods that ran then are reported as failed, or
started again by their restartPolicy, when it is started next with the same --state.
"""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from local.node.program import NodeProgram, Settings


def settings_of(arguments: list[str]) -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m local.node",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--ec2", required=True, metavar="URL", help="EC2 endpoint")
    parser.add_argument("--aws", required=True, metavar="URL", help="S3 endpoint, for volumes")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--runtime", choices=("process", "simulated"), default="process")
    parser.add_argument(
        "--instance-delay", type=float, default=0, metavar="SECONDS", help="from launch to joining"
    )
    parser.add_argument("--cluster-name", help="only instances tagged as owned by this cluster")
    parser.add_argument(
        "--client-ca",
        type=Path,
        help="whom to trust as API server (default: kubelet-client.crt beside the kubeconfig)",
    )
    parser.add_argument(
        "--criu", type=Path, metavar="FILE", help="default: what install_criu.sh installed"
    )
    given = parser.parse_args(arguments)
    beside = given.kubeconfig.parent / "kubelet-client.crt"
    return Settings(
        kubeconfig=given.kubeconfig,
        ec2=given.ec2,
        aws=given.aws,
        state=given.state.resolve(),
        region=given.region,
        runtime=given.runtime,
        instance_delay_seconds=given.instance_delay,
        cluster_name=given.cluster_name,
        criu=given.criu,
        client_ca=given.client_ca or (beside if beside.exists() else None),
    )


async def run(settings: Settings) -> None:
    # The kernel sends SIGIO when a pod waits for a file that is just being copied for S3.
    signal.signal(signal.SIGIO, lambda *_: None)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await NodeProgram(settings).run(stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    asyncio.run(run(settings_of(sys.argv[1:])))
