"""What only the `process` node promises: instances, S3 folders, crashes, refusals, its own port."""

import contextlib
import os
import re
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.node import containers
from local.node.api import KubernetesApi
from local.settings import default_cache
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import Machines, NodeProgram, await_ready

pytestmark = pytest.mark.stack
ISOLATION = containers.probe(default_cache())
isolated = pytest.mark.skipif(not ISOLATION.available, reason=ISOLATION.reason or "isolated")
# Ends itself long after any test, so that a failing one leaves nothing for ever.
STRAY = "(setsid sh -c 'echo stray $$$$; sleep 300' &); echo up; sleep 300"


def stray_pid(cluster: Cluster, name: str) -> int:
    """The machine's number of the process that the pod knows by another."""
    cluster.await_line(name, "stray")
    number, pod = cluster.logs(name).split("stray ")[1].split()[0], cluster.pod(name)
    assert pod
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            numbers = re.search(r"NSpid:\s(.*)", (process / "status").read_text())
            uid = pod["metadata"]["uid"].encode()
            if (
                numbers
                and numbers[1].split()[-1] == number
                and uid in (process / "environ").read_bytes()
            ):
                return int(process.name)
    raise AssertionError(f"no process {number} of {name}")


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_node_is_what_karpenter_expects(api: KubernetesApi, node: str) -> None:
    found = api.get(f"/api/v1/nodes/{node}")

    assert found["spec"]["providerID"].startswith("aws:///us-east-1")
    taints = {(one["key"], one["effect"]) for one in found["spec"]["taints"]}
    assert ("karpenter.sh/unregistered", "NoExecute") in taints
    assert found["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "c5.4xlarge"
    assert found["status"]["capacity"]["cpu"] == "16"
    assert found["status"]["allocatable"]["cpu"] == "15890m"
    lease = api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
    assert lease["spec"]["holderIdentity"] == node


def test_what_is_not_supported_is_refused_with_an_event(cluster: Cluster) -> None:
    probe = {"exec": {"command": ["true"]}}
    name = cluster.run("sleep", "60", container={"livenessProbe": probe, "tty": True})

    status = cluster.wait(name, "Failed")["status"]
    assert status["reason"] == "UnsupportedByProcessNode"
    events = [one for one in cluster.events(name) if one["reason"] == status["reason"]]
    assert "spec.containers[main].livenessProbe" in events[0]["message"]
    assert "`kubelet` nodes" in events[0]["message"]


def test_nothing_of_a_container_outlives_it(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", STRAY)
    pid = stray_pid(cluster, name)

    cluster.delete(name, grace_seconds=0)

    until(lambda: not alive(pid), "the daemonised process is killed")


def test_pods_of_a_terminated_instance_die_at_once(
    api: KubernetesApi, machines: Machines, program: NodeProgram
) -> None:
    instance = machines.launch()
    name = instance["PrivateDnsName"]
    await_ready(api, name)
    cluster = Cluster(api, name)
    pod = cluster.run("sh", "-c", STRAY)
    pid = stray_pid(cluster, pod)

    machines.terminate(instance["InstanceId"])

    until(lambda: not alive(pid), "the pod's processes are gone", seconds=5)
    assert cluster.wait(pod, "Running")  # a dead machine reports nothing
    gone = f"node {name} is removed when it is not Ready any more"
    until(lambda: api.find(f"/api/v1/nodes/{name}") is None, gone, seconds=120)


@pytest.fixture
def own_program(
    program: NodeProgram, machines: Machines, api: KubernetesApi, node: str
) -> Iterator[NodeProgram]:
    """The session's node program, running again after the test."""
    yield program
    assert program.process
    if program.process.poll() is not None:
        program.start()
    await_ready(api, node)


def test_a_killed_node_program_leaves_no_process_and_its_successor_reports_it(
    cluster: Cluster, own_program: NodeProgram
) -> None:
    once = cluster.run("sh", "-c", STRAY)
    again = cluster.run(
        "sh",
        "-c",
        "if test -e /data/seen; then exit 0; fi; touch /data/seen; echo up; sleep 300",
        restartPolicy="OnFailure",
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    done = cluster.run("echo", "kept")
    pid = stray_pid(cluster, once)
    cluster.await_line(again, "up")
    cluster.finish(done)

    own_program.kill()
    until(lambda: not alive(pid), "no process survives", seconds=5)
    own_program.start()

    assert cluster.exit_state(once)["exitCode"] == 137
    assert cluster.finish(once)["status"]["phase"] == "Failed"
    assert cluster.finish(again)["status"]["phase"] == "Succeeded"
    until(lambda: cluster.logs(done) == "kept\n", "logs of finished pods are still there")


def test_a_killed_keeper_ends_its_pods_and_is_replaced(
    cluster: Cluster, program: NodeProgram
) -> None:
    name = cluster.run("sh", "-c", STRAY)
    pid = stray_pid(cluster, name)
    keeper = int((program.state / "keeper.lock").read_text())

    os.kill(keeper, signal.SIGKILL)

    assert cluster.exit_state(name)["exitCode"] == 137
    until(lambda: not alive(pid), "the daemonised process is gone, too", seconds=5)
    assert cluster.output(cluster.run("echo", "next")) == "next\n"


def test_a_token_without_rights_may_not_read_the_node(
    cluster: Cluster, api: KubernetesApi, node: str
) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts"
    cluster.create("serviceaccounts", {"metadata": {"name": "nobody"}})
    token = api.create(f"{account}/nobody/token", {"spec": {}})["status"]["token"]
    endpoints = api.get(f"/api/v1/nodes/{node}")["status"]["daemonEndpoints"]
    base = f"https://127.0.0.1:{endpoints['kubeletEndpoint']['Port']}"
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def status(method: str, path: str, **headers: str) -> int:
        request = urllib.request.Request(base + path, method=method, headers=headers)
        try:
            answer = urllib.request.urlopen(request, context=trusting)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        with answer:
            return int(answer.status)

    checkpoint = "/checkpoint/default/none/main"
    bearer = {"Authorization": f"Bearer {token}"}
    assert status("GET", "/healthz") == 200
    assert status("POST", checkpoint) == 401
    assert status("POST", checkpoint, Authorization="Bearer nonsense") == 401
    assert status("POST", checkpoint, **bearer) == 403
    role = {"apiGroups": [""], "resources": ["nodes/checkpoint"], "verbs": ["create"]}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    api.create(f"{rbac}/clusterroles", {"metadata": {"name": "saver"}, "rules": [role]})
    binding = {
        "metadata": {"name": "saver"},
        "roleRef": {
            "kind": "ClusterRole",
            "name": "saver",
            "apiGroup": "rbac.authorization.k8s.io",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "nobody", "namespace": "default"}],
    }
    api.create(f"{rbac}/clusterrolebindings", binding)
    granted = "the checkpoint right is enough to be answered, here with 404"
    until(lambda: status("POST", checkpoint, **bearer) == 404, granted)
    assert status("GET", "/pods", **bearer) == 403


def test_the_metadata_service_knows_the_machine(cluster: Cluster) -> None:
    script = (
        "import os, urllib.request as r\n"
        "base = os.environ['AWS_EC2_METADATA_SERVICE_ENDPOINT'] + '/latest/'\n"
        "ttl = {'X-aws-ec2-metadata-token-ttl-seconds': '60'}\n"
        "q = r.Request(base + 'api/token', method='PUT', headers=ttl)\n"
        "key = {'X-aws-ec2-metadata-token': r.urlopen(q).read().decode()}\n"
        "def get(name, headers):\n"
        "    try: return r.urlopen(r.Request(base + 'meta-data/' + name, headers=headers)).read()\n"
        "    except r.HTTPError as error: return error.code\n"
        "print(get('instance-type', key).decode(), get('instance-life-cycle', key).decode(),\n"
        "      get('spot/instance-action', key), get('instance-id', {}))\n"
    )

    assert cluster.output(cluster.run("python3", "-c", script)) == "c5.4xlarge spot 404 401\n"


def bucket_volume(
    cluster: Cluster, api: KubernetesApi, name: str, *options: str
) -> dict[str, object]:
    """A bound claim on the prefix `name/` of the bucket `data`."""
    api.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Ti"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "claimRef": {"namespace": "default", "name": name},
                "mountOptions": ["region us-east-1", f"prefix {name}/", *options],
                "csi": {
                    "driver": "s3.csi.aws.com",
                    "volumeHandle": name,
                    "volumeAttributes": {"bucketName": "data"},
                },
            },
        },
    )
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": {"storage": "1Ti"}},
    }
    cluster.create("persistentvolumeclaims", {"metadata": {"name": name}, "spec": claim})
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


@pytest.fixture(scope="session")
def bucket(machines: Machines) -> str:
    machines.s3.create_bucket(Bucket="data")
    return "data"


def objects(machines: Machines, prefix: str) -> dict[str, bytes]:
    listed = machines.s3.list_objects_v2(Bucket="data", Prefix=prefix).get("Contents", [])
    return {
        one["Key"]: machines.s3.get_object(Bucket="data", Key=one["Key"])["Body"].read()
        for one in listed
    }


MOUNTED = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}


def test_objects_are_files_and_closed_files_become_objects(
    cluster: Cluster, api: KubernetesApi, machines: Machines, bucket: str
) -> None:
    machines.s3.put_object(Bucket=bucket, Key="both/in/a.txt", Body=b"alpha")
    volume = bucket_volume(cluster, api, "both", "allow-delete", "allow-overwrite")
    script = (
        "cat /data/in/a.txt > /data/early; exec 5> /data/late; echo half >&5; echo up; sleep 300"
    )
    name = cluster.run("sh", "-c", script, container=MOUNTED, volumes=[volume])
    cluster.await_line(name, "up")

    until(lambda: "both/early" in objects(machines, "both/"), "the closed file is uploaded")
    assert "both/late" not in objects(machines, "both/")  # still open

    cluster.delete(name, grace_seconds=1)
    cluster.await_gone(name)
    expected = {"both/in/a.txt": b"alpha", "both/early": b"alpha", "both/late": b"half\n"}
    assert objects(machines, "both/") == expected


def test_overwriting_without_the_option_fails_the_pod(
    cluster: Cluster, api: KubernetesApi, machines: Machines, bucket: str
) -> None:
    machines.s3.put_object(Bucket=bucket, Key="strict/model", Body=b"old")
    volume = bucket_volume(cluster, api, "strict")
    name = cluster.run("sh", "-c", "echo newer > /data/model", container=MOUNTED, volumes=[volume])

    status = cluster.wait(name, "Failed")["status"]
    assert status["reason"] == "S3VolumeError"
    assert "model: overwritten without the mount option allow-overwrite" in status["message"]
    assert objects(machines, "strict/") == {"strict/model": b"old"}


def test_a_read_only_volume_uploads_nothing(
    cluster: Cluster, api: KubernetesApi, machines: Machines, bucket: str
) -> None:
    volume = bucket_volume(cluster, api, "read", "read-only")
    machines.s3.put_object(Bucket=bucket, Key="read/x", Body=b"there")
    write = "echo more > /data/y || cat /data/x"
    name = cluster.run("sh", "-c", write, container=MOUNTED, volumes=[volume])

    written = cluster.output(name)
    assert objects(machines, "read/") == {"read/x": b"there"}
    if ISOLATION.available:
        assert "Read-only file system" in written
        assert written.endswith("there")


def on_the_way(folder: str) -> list[str]:
    """What a pod sees there of the machine: the path to its interpreter, if it leads through."""
    ways = {Path(sys.prefix), Path(sys.base_prefix)}
    return sorted({way.parts[2] for way in ways if way.is_relative_to(folder)})


@isolated
def test_a_pod_writes_to_a_root_of_its_own_and_not_to_the_machine(cluster: Cluster) -> None:
    script = (
        "echo $$$$ `hostname`; ls -A /tmp /root /home;"
        "touch /tmp/mine /usr/mine /etc/mine /dev/shm/mine; ls /tmp /usr/mine /etc/mine"
    )
    name = cluster.run("sh", "-c", script)

    output = cluster.output(name)
    home, tmp = on_the_way("/home"), sorted([*on_the_way("/tmp"), "mine"])
    assert output.startswith("\n".join([f"2 {name}", "/home:", *home, "", "/root:", ""]))
    assert output.endswith("\n".join(["/etc/mine", "/usr/mine", "", "/tmp:", *tmp, ""]))
    for path in ("/tmp/mine", "/usr/mine", "/etc/mine", "/dev/shm/mine"):
        assert not Path(path).exists()


@isolated
def test_pods_do_not_see_each_other(cluster: Cluster, program: NodeProgram) -> None:
    first = cluster.run("sh", "-c", "touch /tmp/first; ipcmk -M 10; echo up; sleep 300")
    cluster.await_line(first, "up")

    script = (
        "ls /tmp; ipcs -m | grep -c 0x; ls /proc | grep -c '^[0-9]'; ls $0; cat $0/../kubeconfig"
    )
    second = cluster.run("sh", "-c", f"{script} || true", container={"args": [str(program.state)]})

    numbers = cluster.output(second)
    assert "first" not in numbers
    assert numbers.splitlines()[len(on_the_way("/tmp"))] == "0"
    assert "No such file" in numbers


@isolated
def test_a_program_that_names_a_mount_path_itself_finds_it(
    cluster: Cluster, api: KubernetesApi, machines: Machines, bucket: str
) -> None:
    machines.s3.put_object(Bucket=bucket, Key="named/input.txt", Body=b"read by its own path")
    volume = bucket_volume(cluster, api, "named")
    code = "p = '/'.join(['', 'data', 'input.txt']); print(open(p).read())"
    name = cluster.run("python3", "-c", code, container=MOUNTED, volumes=[volume])

    assert cluster.output(name) == "read by its own path\n"


def test_a_sub_path_does_not_lead_out_of_its_volume(cluster: Cluster) -> None:
    volumes = [{"name": "data", "emptyDir": {}}]
    link = {
        "name": "link",
        "image": cluster.image,
        "command": ["ln", "-s", "/etc", "/data/out"],
        **MOUNTED,
    }
    mounts = [{"name": "data", "mountPath": "/out", "subPath": "out"}]
    name = cluster.run(
        "touch",
        "/out/mine",
        container={"volumeMounts": mounts},
        initContainers=[link],
        volumes=volumes,
    )

    def refused() -> bool:
        pod = cluster.pod(name)
        assert pod
        statuses = pod["status"].get("containerStatuses", [{}])
        waiting = statuses[0].get("state", {}).get("waiting", {})
        return "leads out of data" in waiting.get("message", "")

    until(refused, "the node refuses the mount")
