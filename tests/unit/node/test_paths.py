"""Mount paths in commands and variables become the pod's folders, and nothing else changes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.node.paths import rewrite, volume_variable

MOUNTS = {"/data": Path("/pods/1/data"), "/data/models": Path("/pods/1/models")}


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/data", "/pods/1/data"),
        ("/data/a/b.txt", "/pods/1/data/a/b.txt"),
        ("--out=/data/x", "--out=/pods/1/data/x"),
        (
            "cat /data/x > '/data/y'; ls /data",
            "cat /pods/1/data/x > '/pods/1/data/y'; ls /pods/1/data",
        ),
        ("/data/models/m", "/pods/1/models/m"),
        ("/data/model", "/pods/1/data/model"),
        ("file:///data/x", "file:///data/x"),
        ("/database", "/database"),
        ("/data-old", "/data-old"),
        ("/data.bak", "/data.bak"),
        ("/mnt/data/x", "/mnt/data/x"),
        ("s3://bucket/data/x", "s3://bucket/data/x"),
        ("./data", "./data"),
        ("a:/data:/data/models", "a:/pods/1/data:/pods/1/models"),
        ("it is in /data.", "it is in /pods/1/data."),
    ],
)
def test_whole_paths_only(text: str, rewritten: str) -> None:
    assert rewrite(text, MOUNTS) == rewritten


@given(st.text())
def test_without_mounts_nothing_changes(text: str) -> None:
    assert rewrite(text, {}) == text


@given(st.text(alphabet="abc/. =", max_size=30))
def test_a_text_without_the_path_stays(text: str) -> None:
    assert rewrite(text, {"/volume": Path("/pods/1")}) == text


def test_the_variable_of_a_volume() -> None:
    assert volume_variable("my-data.2") == "SLUICE_VOLUME_MY_DATA_2"
