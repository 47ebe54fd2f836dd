"""The documentation: generated pages are current, links lead somewhere, examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from sluice.core.jobs.table import KINDS as JOB_KINDS
from sluice.core.values.reasons import Reason

from cli.main import VERBS, sluice
from tests.docs.advice import ADVICE
from tests.docs.generate import REFERENCE, page_name, pages

CLONE = Path(__file__).parents[2]
README_LINES = 120
WRITTEN = sorted([*CLONE.glob("*.md"), *(CLONE / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]+)?\)")
KINDS = {"Workload", *JOB_KINDS}


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(CLONE)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        found = (page.parent / target).resolve()
        known = found.exists()
        if known and anchor and found.suffix == ".md":
            known = anchor[1:] in anchors(found)
        if not known:
            broken.append(target + anchor)

    assert broken == []


def test_every_reason_code_has_its_page() -> None:
    written = {path.name for path in (REFERENCE / "reasons").glob("*.md")} - {"README.md"}

    assert written == {page_name(reason) for reason in Reason}
    assert len(written) == len(Reason) == len(ADVICE)


def test_every_command_has_its_section() -> None:
    text = (REFERENCE / "commands.md").read_text(encoding="utf-8")

    assert [verb.name for verb in VERBS if f"\n## sluice {verb.name}\n" not in text] == []


def test_generated_pages_are_current() -> None:
    stale = [
        name
        for name, text in pages()
        if not (REFERENCE / name).exists() or (REFERENCE / name).read_text(encoding="utf-8") != text
    ]

    assert stale == [], "run `make docs`"


def test_the_readme_is_short_and_its_two_commands_exist() -> None:
    lines = (CLONE / "README.md").read_text(encoding="utf-8").splitlines()
    makefile = (CLONE / "Makefile").read_text(encoding="utf-8")

    assert len(lines) <= README_LINES
    for target in ("demo", "test"):
        assert f"make {target}" in "\n".join(lines)
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(CLONE)))
def test_job_documents_of_the_pages_are_accepted(page: Path, tmp_path: Path) -> None:
    """By the client-side dry run, which is the code of the control plane."""
    for number, block in enumerate(
        re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    ):
        documents = [d for d in yaml.safe_load_all(block) if isinstance(d, dict)]
        if not documents or not {d.get("kind") for d in documents} <= KINDS:
            continue
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        result = CliRunner().invoke(sluice, ["submit", "-f", str(file), "--dry-run=client"])
        assert result.exit_code == 0, result.output
