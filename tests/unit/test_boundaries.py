"""The import contracts and the rule of unique class names: each reports a planted violation."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]
LAYER = Path("layers/sluice/python")
PROGRAMS = ("functions", "cli", "local", "infra", "agent")
# The embedded stack may use a word of its own field twice; what users run and operate may not.
PRODUCT = (LAYER / "sluice", *map(Path, ("functions", "cli", "infra", "agent")))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their contracts, in a folder where a violation harms nobody."""
    folder = tmp_path_factory.mktemp("boundaries")
    shutil.copy(CLONE / ".importlinter", folder)
    for package in (LAYER / "sluice", *map(Path, PROGRAMS)):
        shutil.copytree(
            CLONE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(folder / LAYER)])
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        pytest.param(
            "sluice/adapters/planted.py",
            "from sluice.usecases.upkeep import relay",
            "sluice.adapters is not allowed to import sluice.usecases",
            id="an adapter that imports a use case",
        ),
        pytest.param(
            "sluice/adapters/planted.py",
            "from sluice import bootstrap",
            "sluice.adapters is not allowed to import sluice.bootstrap",
            id="an adapter that imports the wiring",
        ),
        pytest.param(
            "sluice/simulation/planted.py",
            "from sluice.adapters import system_clock",
            "sluice.simulation is not allowed to import sluice.adapters",
            id="a simulation module that imports an adapter",
        ),
        pytest.param("sluice/planted.py", "", "planted", id="a new module outside of all layers"),
        pytest.param(
            "sluice/core/planted.py", "", "planted", id="a new module of the core without a layer"
        ),
        pytest.param(
            "sluice/usecases/planted.py",
            "",
            "planted",
            id="a new module of the use cases without a layer",
        ),
        pytest.param(
            "functions/planted.py",
            "from sluice.adapters import system_clock",
            "functions is not allowed to import sluice.adapters",
            id="a function that imports an adapter",
        ),
        pytest.param(
            "functions/planted.py",
            "from functions import admit",
            "functions.planted is not allowed to import functions.admit",
            id="a function that imports another one",
        ),
        pytest.param(
            "sluice/core/planted/__init__.py",
            "import time",
            "sluice.core is not allowed to import time",
            id="a core module that reads the clock",
        ),
        pytest.param(
            "sluice/errors.py",
            "from sluice.core.values import rows",
            "sluice.errors is not allowed to import sluice.core",
            id="the bottom layer that imports the core",
        ),
        pytest.param(
            "local/planted.py",
            "from cli import app",
            "local is not allowed to import cli",
            id="the embedded stack that imports the command line",
        ),
    ],
)
def test_a_violation_makes_the_import_contracts_fail(
    copy: Path, module: str, line: str, complaint: str
) -> None:
    planted = copy / (LAYER / module if module.startswith("sluice") else module)
    before = planted.read_text() if planted.exists() else None
    planted.parent.mkdir(exist_ok=True)
    planted.write_text((before or "") + f"\n{line}\n")
    try:
        result = lint_imports(copy)
    finally:
        if before is None:
            planted.unlink()
        else:
            planted.write_text(before)

    assert result.returncode, result.stdout
    assert complaint in " ".join(result.stdout.split()), result.stdout


def test_siblings_in_a_circle_make_the_import_contracts_fail(copy: Path) -> None:
    pair = [copy / "infra" / name for name in ("planted_a.py", "planted_b.py")]
    for module, other in zip(pair, reversed(pair), strict=True):
        module.write_text(f"from infra import {other.stem}\n")
    try:
        result = lint_imports(copy)
    finally:
        for module in pair:
            module.unlink()

    assert result.returncode, result.stdout
    assert "No circles between siblings, at any depth BROKEN" in result.stdout


def test_the_copy_keeps_the_contracts_without_a_violation(copy: Path) -> None:
    result = lint_imports(copy)

    assert not result.returncode, result.stdout


def test_every_package_that_is_built_has_contracts() -> None:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())
    built = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    layout = (CLONE / "hatch_build.py").read_text()
    parts = ast.literal_eval(layout.split("PARTS = ")[1].split("SKIPPED")[0])
    built += [part for part in parts if (CLONE / part / "__init__.py").exists()]
    contracts = (CLONE / ".importlinter").read_text()
    listed = contracts.split("root_packages =")[1].split("include_external")[0].split()

    assert sorted(Path(package).name for package in built) == sorted(listed)


def class_names(root: Path) -> Iterator[tuple[str, str]]:
    """Each class of the product with the place of its definition, below `root`."""
    for package in PRODUCT:
        for module in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(module.read_text())):
                if isinstance(node, ast.ClassDef):
                    yield node.name, f"{module.relative_to(root)}:{node.lineno}"


def shared_class_names(root: Path) -> dict[str, list[str]]:
    """Names that more than one class has, with the places of all of them."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in class_names(root):
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_class_name_stands_twice() -> None:
    assert shared_class_names(CLONE) == {}


def test_a_second_definition_of_a_class_name_is_found(copy: Path) -> None:
    name, place = next(class_names(copy))
    planted = copy / "cli" / "planted.py"
    planted.write_text(f"class {name}: ...\n")
    try:
        found = shared_class_names(copy)
    finally:
        planted.unlink()

    assert found[name] == [place, "cli/planted.py:1"]
