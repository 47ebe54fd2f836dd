"""CRIU comes where it can; where it cannot, one line says why and nothing else is hurt."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.node.criu import Criu
from local.node.preparation import prepare

WORKS = Criu(Path("/criu"), "4.2.1", "")
ABSENT = Criu(None, "", "no CRIU", installable=True)


class Machine:
    """What is found at each look, the last of it again and again."""

    def __init__(self, *found: Criu) -> None:
        self.found, self.said = list(found), list[str]()

    def look(self, _named: Path | None, _cache: Path) -> Criu:
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]

    def prepare(self, folder: Path, script: str) -> Criu:
        path = folder / "install.sh"
        path.write_text(script)
        return prepare(folder, self.said.append, look=self.look, script=path)


def test_a_machine_that_has_it_hears_nothing(tmp_path: Path) -> None:
    machine = Machine(WORKS)

    assert machine.prepare(tmp_path, 'touch "$1.ran"') == WORKS

    assert machine.said == []
    assert not (tmp_path / "criu.ran").exists()


def test_it_is_installed_into_the_cache(tmp_path: Path) -> None:
    machine = Machine(ABSENT, WORKS)

    assert machine.prepare(tmp_path, 'touch "$1.ran"') == WORKS

    assert (tmp_path / "criu.ran").exists()
    assert machine.said == ["installing CRIU, which saves processes: some seconds"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo trying >&2; echo no mirror here >&2; exit 1", "no mirror here"),
        ("exit 3", "install_criu.sh ended with 3"),
    ],
)
def test_a_failed_installation_tells_its_reason_and_hurts_nobody(
    tmp_path: Path, script: str, why: str
) -> None:
    machine = Machine(ABSENT)

    assert machine.prepare(tmp_path, script).reason == why

    assert machine.said[-1] == (
        f"processes cannot be saved here: {why}; checkpoint.mode `kubelet` falls back to"
        " `application` on process nodes"
    )


def test_where_it_cannot_work_nothing_is_installed(tmp_path: Path) -> None:
    machine = Machine(Criu(None, "", "CRIU needs root"))

    assert machine.prepare(tmp_path, 'touch "$1.ran"').program is None

    assert not (tmp_path / "criu.ran").exists()
    assert len(machine.said) == 1
