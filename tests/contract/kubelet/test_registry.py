"""The nodes' registry, and the agent that pushes to it; needs neither root nor a kubelet."""

import hashlib
import io
import json
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from sluice.adapters.checkpoint_archives import CheckpointArchives
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.migrations.checkpointing import Checkpoint

from agent.registry import CONTAINER, Repository
from local.kubelet_node.registry import PYTHON, Images, serve


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images")


@pytest.fixture
def host(images: Images) -> Iterator[str]:
    server = serve(images, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


def archive_of(folder: Path, base: str) -> Path:
    """A checkpoint archive as the kubelet writes it, as far as the agent reads it."""
    target = folder / "checkpoint.tar"
    data = json.dumps({"rootfsImageRef": base, "rootfsImageName": "python:3.11"}).encode()
    with tarfile.open(target, "w") as tar:
        for name, content in (("config.dump", data), ("checkpoint/pages-1.img", b"\7" * 5000)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target


def summed(archive: Path) -> Callable[[], str]:
    """What the agent knows once it has uploaded the archive."""
    return lambda: hashlib.sha256(archive.read_bytes()).hexdigest()


def pushed(host: str, archive: Path) -> dict[str, Any]:
    """The manifest of the archive's image."""
    name = Repository(f"{host}/sluice/checkpoints").push("one", archive, "main", summed(archive))
    assert name == f"{host}/sluice/checkpoints:one"
    found: dict[str, Any] = json.loads(fetch(f"http://{host}/v2/sluice/checkpoints/manifests/one"))
    return found


def test_a_pushed_checkpoint_is_one_layer_with_the_container_as_annotation(
    host: str, tmp_path: Path
) -> None:
    archive = archive_of(tmp_path, "docker.io/library/python@sha256:" + "0" * 64)

    manifest = pushed(host, archive)

    assert manifest["annotations"] == {CONTAINER: "main"}
    (layer,) = manifest["layers"]
    blob = fetch(f"http://{host}/v2/sluice/checkpoints/blobs/{layer['digest']}")
    assert blob == archive.read_bytes()


def test_a_checkpoint_that_is_removed_leaves_the_layers_of_others(
    host: str, images: Images, tmp_path: Path
) -> None:
    base = "docker.io/library/python@sha256:" + "0" * 64
    (tmp_path / "other").mkdir()
    other = archive_of(tmp_path / "other", base)
    with tarfile.open(other, "a") as tar:
        tar.addfile(tarfile.TarInfo("more"))
    repository = Repository(f"{host}/sluice/checkpoints")
    repository.push("other", other, "main", summed(other))
    before = {path.name for path in images.blobs.iterdir()}
    archive = archive_of(tmp_path, base)
    image = repository.push("one", archive, "main", summed(archive))
    archives = CheckpointArchives(MagicMock(), MagicMock(), "s3://bucket/checkpoints/")
    checkpoint = Checkpoint("w", 0, "", 1, CheckpointMode.KUBELET, image=image)

    archives.remove(checkpoint)
    archives.remove(checkpoint)  # again: nothing is left to do

    assert {path.name for path in images.blobs.iterdir()} == before
    assert fetch(f"http://{host}/v2/sluice/checkpoints/manifests/other")


def test_a_base_image_of_this_registry_is_named_there(
    host: str, images: Images, tmp_path: Path
) -> None:
    (tmp_path / "python.tar").write_bytes(b"layer")
    digest = images.add(PYTHON, [tmp_path / "python.tar"], {})

    manifest = pushed(host, archive_of(tmp_path, f"docker.io/library/python@{digest}"))

    _, corrected = manifest["layers"]
    blob = fetch(f"http://{host}/v2/sluice/checkpoints/blobs/{corrected['digest']}")
    with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
        file = tar.extractfile("config.dump")
        assert file
        described = json.load(file)
    assert described["rootfsImageRef"] == f"{host}/library/python@{digest}"
    assert described["rootfsImageName"] == "python:3.11"


def test_python_of_any_registry_and_tag_is_ours_and_nothing_else_is(
    host: str, images: Images, tmp_path: Path
) -> None:
    (tmp_path / "python.tar").write_bytes(b"layer")
    images.add(PYTHON, [tmp_path / "python.tar"], {})

    url = f"http://{host}/v2/docker/library/python/manifests/3.11?ns=public.ecr.aws"
    assert json.loads(fetch(url))["layers"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(f"http://{host}/v2/library/busybox/manifests/latest?ns=docker.io")
    with refused.value as answer:
        assert answer.code == 404


def test_an_upload_with_another_digest_is_refused(host: str, images: Images) -> None:
    url = f"http://{host}/v2/any/blobs/uploads/?digest=sha256:{'0' * 64}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, data=b"other", method="POST"))
    with refused.value as answer:
        assert answer.code == 400
    assert not list(images.blobs.iterdir())
    assert not list(images.drafts.iterdir())
