"""What containers see of the machine, as far as that is planned before anything is mounted."""

import sys
from pathlib import Path

from local.node.containers import Bind, Container, Layers, mounted_file_systems, plan, probe

MOUNTS = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:20 / /proc rw - proc proc rw
23 21 0:21 / /dev/shm rw - tmpfs tmpfs rw
24 21 254:1 / /data\\040sets rw - xfs /dev/vdb rw
25 21 254:2 / /home rw - btrfs /dev/vdc rw
26 21 254:3 / /home/me/more rw - ext4 /dev/vdd rw
27 21 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro
28 21 254:0 /etc /etc/hosts rw master:1 - ext4 /dev/vda rw
"""


def test_file_systems_with_files_are_shared_unless_they_are_hidden() -> None:
    found = mounted_file_systems(MOUNTS, [Path("/home")])

    assert found == [Path("/data sets"), Path("/etc/hosts")]


def test_state_and_private_folders_are_hidden_and_a_hidden_interpreter_is_shared(
    tmp_path: Path,
) -> None:
    private = tmp_path / "credentials"
    private.mkdir()

    isolation = plan(tmp_path / "nodes", [private, Path(sys.base_prefix).parent], MOUNTS)

    assert Path("/tmp") in isolation.hidden
    assert not any(
        path.is_relative_to("/tmp") and path != Path("/tmp") for path in isolation.hidden
    )
    interpreter = Path(sys.base_prefix).resolve()
    assert Bind(interpreter, interpreter, read_only=True) in isolation.shared
    assert all(bind.read_only for bind in isolation.shared)


def test_the_keeper_is_told_layers_and_mounts_as_text() -> None:
    layers = Layers(Path("/state/pods/u/containers/main"))
    bind = Bind(Path("/state/pods/u/volumes/data"), Path("/data"), read_only=True)

    assert Container("pod-1", layers, (bind,)).document() == {
        "hostname": "pod-1",
        "root": {
            "upper": "/state/pods/u/containers/main/upper",
            "work": "/state/pods/u/containers/main/work",
            "merged": "/state/pods/u/containers/main/merged",
        },
        "binds": [{"source": "/state/pods/u/volumes/data", "target": "/data", "read_only": True}],
    }


def test_a_machine_says_why_it_does_not_isolate(tmp_path: Path) -> None:
    isolation = probe(tmp_path)

    assert isolation.available is not bool(isolation.reason)
