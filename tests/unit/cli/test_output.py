"""What commands print can control no terminal (finding Q7)."""

from __future__ import annotations

import json

import pytest

from cli.output import clean, json_text

HOSTILE = "a\x1b[31m\x9b31m\u202e\x7f\x00b\U000e0001"


@pytest.mark.parametrize("print_it", [clean, json_text])
def test_q7_no_control_character_is_printed(print_it: object) -> None:
    shown = print_it(HOSTILE)  # type: ignore[operator]

    assert all(character.isprintable() for character in shown)


def test_q7_json_says_the_same_as_before() -> None:
    value = {"name": HOSTILE, "ü": ["✓", 1.5, None]}

    assert json.loads(json_text(value)) == value
    assert "✓" in json_text(value)
