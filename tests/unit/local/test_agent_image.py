"""The agent's image for real kubelets is what agent/Dockerfile says."""

import tarfile
from pathlib import Path

import pytest

from local.errors import PreparationError
from local.kubelet_node import agent_image
from local.kubelet_node.agent_image import recipe
from local.kubelet_node.registry import Images
from local.settings import CLONE


def test_the_recipe_is_that_of_the_dockerfile() -> None:
    made = recipe()

    assert made.requirements == CLONE / "requirements/agent.txt"
    assert made.package == CLONE / "agent"
    assert made.config["Entrypoint"] == ["python", "-m", "agent"]
    assert made.config["User"] == "0"
    assert {"PYTHONPATH=/libraries", "PYTHONDONTWRITEBYTECODE=1"} <= set(made.config["Env"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("USER 0", "EXPOSE 80", "EXPOSE 80 is not understood"),
        ("COPY agent /libraries/agent", "COPY agent /elsewhere", "copies nothing to"),
        ("COPY agent /lib", "COPY cli /libraries/cli\nCOPY agent /lib", "copies more than"),
    ],
)
def test_what_the_dockerfile_learns_must_be_learnt_here_too(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    file = tmp_path / "agent/Dockerfile"
    file.parent.mkdir()
    text = agent_image.DOCKERFILE.read_text()
    assert old in text
    file.write_text(text.replace(old, new))

    with pytest.raises(PreparationError, match=complaint):
        recipe(file)


def test_the_same_content_has_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w"):
        pass
    monkeypatch.setattr(agent_image, "_libraries", lambda *_: layer)
    monkeypatch.setattr("local.kubelet_node.debian.layer", lambda *_: layer)

    names = {agent_image.store(Images(tmp_path / folder), tmp_path, print) for folder in ("a", "b")}

    (name,) = names
    assert name.startswith("sluice/agent@sha256:")
    packed = [
        blob
        for blob in Images(tmp_path / "a").blobs.iterdir()
        if b"agent/orders.py" in blob.read_bytes()
    ]
    with tarfile.open(packed[0]) as tar:
        assert "libraries/agent/__main__.py" in tar.getnames()
