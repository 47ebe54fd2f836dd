"""docs/kinds.md names tests that are there, and every kind of the table."""

import ast
import re
from pathlib import Path

from sluice.core.jobs.table import KINDS

CLONE = Path(__file__).parents[2]
PAGE = (CLONE / "docs" / "kinds.md").read_text(encoding="utf-8")


def test_the_table_names_tests_that_exist_and_all_of_them() -> None:
    tree = ast.parse((CLONE / "tests" / "e2e" / "test_kinds.py").read_text(encoding="utf-8"))
    there = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}

    assert set(re.findall(r"`(test_\w+)`", PAGE)) == {
        name for name in there if name.startswith("test_")
    }


def test_every_kind_and_its_version_are_named() -> None:
    for name, kind in KINDS.items():
        assert name in PAGE
        assert f"`{kind.api_version}`" in PAGE
