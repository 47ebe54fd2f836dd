import importlib.util
import marshal
import struct
import sys
from pathlib import Path
from types import CodeType

import pytest

from infra.code import _CopiedPackage

UNCHECKED_HASH = 0b01


def test_copied_code_is_compiled_so_that_no_time_stamp_can_void_it(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "out"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "stale.pyc").write_bytes(b"")
    (source / "hello.py").write_text("x = 1\n")
    output.mkdir()

    done = _CopiedPackage(source, into="python", home="/opt").try_bundle(str(output), image=None)

    assert done is True
    (compiled,) = (output / "python" / "__pycache__").iterdir()
    content = compiled.read_bytes()
    assert compiled.name == f"hello.{sys.implementation.cache_tag}.pyc"
    assert content[:4] == importlib.util.MAGIC_NUMBER
    assert struct.unpack("<I", content[4:8]) == (UNCHECKED_HASH,)
    code = marshal.loads(content[16:])
    assert isinstance(code, CodeType)
    assert code.co_filename == "/opt/python/hello.py"


def test_code_that_does_not_compile_stops_the_deployment(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "broken.py").write_text("def :\n")
    output.mkdir()

    with pytest.raises(RuntimeError, match="does not compile"):
        _CopiedPackage(source, into="python", home="/opt").try_bundle(str(output))


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "hello.py").write_text("def f() -> int:\n    return 1\n")
    found = []

    for name in ("one", "two"):
        output = tmp_path / name
        output.mkdir()
        _CopiedPackage(source, into="python", home="/opt").try_bundle(str(output))
        found.append(next((output / "python" / "__pycache__").iterdir()).read_bytes())

    assert found[0] == found[1]
