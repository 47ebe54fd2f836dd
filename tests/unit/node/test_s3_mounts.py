"""PersistentVolumes of the S3 driver, and which files may be uploaded."""

from pathlib import Path
from typing import Any

import pytest

from local.node.s3_volume import UnsupportedVolumeError, copy_closed, mount_of


def a_volume(*options: str, driver: str = "s3.csi.aws.com") -> dict[str, Any]:
    source = {"driver": driver, "volumeAttributes": {"bucketName": "b"}}
    return {"metadata": {"name": "pv"}, "spec": {"csi": source, "mountOptions": list(options)}}


def test_options_are_understood_in_all_their_spellings() -> None:
    volume = a_volume("prefix a/b/", "--region=eu-west-1", "allow-delete", "uid=1000")

    mount = mount_of(volume, read_only=False)

    assert (mount.bucket, mount.prefix, mount.region) == ("b", "a/b/", "eu-west-1")
    assert (mount.allow_delete, mount.allow_overwrite, mount.read_only) == (True, False, False)


def test_read_only_comes_from_the_pod_or_the_volume() -> None:
    assert mount_of(a_volume(), read_only=True).read_only
    assert mount_of(a_volume("read-only"), read_only=False).read_only


@pytest.mark.parametrize(
    ("volume", "complaint"),
    [
        (a_volume(driver="ebs.csi.aws.com"), "only csi.driver"),
        (a_volume("prefix a"), "must end with a slash"),
        (a_volume("endpoint-url http://elsewhere"), "endpoint-url"),
    ],
)
def test_other_volumes_are_refused(volume: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UnsupportedVolumeError, match=complaint):
        mount_of(volume, read_only=False)


def test_a_file_open_for_writing_is_not_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("w") as file:
        file.write("half")
        file.flush()
        assert not copy_closed(source, target, only_closed=True)
        assert copy_closed(source, target, only_closed=False)
    assert copy_closed(source, target, only_closed=True)
    assert target.read_text() == "half"


def test_a_link_out_of_the_volume_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="link"):
        copy_closed(tmp_path / "link", tmp_path / "target", only_closed=True)
    assert not (tmp_path / "target").exists()
