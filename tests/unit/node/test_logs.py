"""Log reading: the last lines of a file, whatever its size and ending."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.node import logs


def tail(path: Path, lines: int) -> bytes:
    return path.read_bytes()[logs.tail_offset(path, lines) :]


@given(st.lists(st.text("ab", max_size=3), max_size=12), st.integers(0, 14), st.booleans())
def test_the_tail_is_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], wanted: int, closed: bool
) -> None:
    text = "\n".join(lines) + ("\n" if closed and lines else "")
    path = tmp_path_factory.mktemp("log") / "0.log"
    path.write_text(text)

    expected = "".join(text.splitlines(keepends=True)[-wanted:]) if wanted else ""
    assert tail(path, wanted).decode() == expected


def test_lines_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHUNK_BYTES", 4)
    path = tmp_path / "0.log"
    path.write_text("0123456789\nabcdefghij\nxyz\n")

    assert tail(path, 2) == b"abcdefghij\nxyz\n"
    assert tail(path, 1) == b"xyz\n"
