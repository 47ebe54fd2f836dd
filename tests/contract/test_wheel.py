"""The wheel in an empty environment: one top-level package, a client and a command that work."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

CLONE = Path(__file__).parents[2]
UV = (sys.executable, "-m", "uv")
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "train-", "labels": {"kueue.x-k8s.io/queue-name": "research"}},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "python:3.11",
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            }
        }
    },
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [*UV, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(CLONE)], check=True
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the wheel and what it depends on, nothing else."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([*UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    install = [*UV, "pip", "install", "--quiet", "--python", str(folder / "bin/python")]
    subprocess.run([*install, str(wheel)], check=True)
    return folder / "bin"


def run(environment: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment, in an empty folder and without credentials."""
    return subprocess.run(
        [str(environment / command[0]), *command[1:]],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_only_top_level_name_is_sluice_and_types_are_shipped(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    top = {name.split("/")[0] for name in names}

    assert {name for name in top if not name.endswith(".dist-info")} == {"sluice"}
    assert "sluice/py.typed" in names
    assert "sluice/schemas/workload.schema.json" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_client_imports_without_the_folders_of_the_command(
    environment: Path, tmp_path: Path
) -> None:
    program = (
        "from sluice.client import Client, AsyncClient\n"
        "from importlib.util import find_spec\n"
        "print([name for name in ('cli', 'local', 'infra', 'functions', 'agent')"
        " if find_spec(name)])"
    )

    done = run(environment, tmp_path, "python", "-c", program)

    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_simulate_and_schema_need_nothing_else(environment: Path, tmp_path: Path) -> None:
    scenario = CLONE / "examples/scenarios/three-jobs-64-cores.yaml"

    simulated = run(environment, tmp_path, "sluice", "simulate", str(scenario))
    schemas = run(environment, tmp_path, "sluice", "schema")

    assert "3 admissions" in simulated.stdout, simulated.stderr
    assert "workload" in schemas.stdout.split()


def test_a_client_side_dry_run_needs_no_credentials(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))

    done = run(environment, tmp_path, "sluice", "submit", "-f", "job.yaml", "--dry-run=client")

    assert done.returncode == 0, done.stderr
    assert "valid" in done.stdout


def test_commands_of_an_extra_say_how_to_install_it(environment: Path, tmp_path: Path) -> None:
    done = run(environment, tmp_path, "sluice", "local", "up")

    assert done.returncode == 1
    assert "pip install 'sluice-batch[local]'" in done.stderr
