import ast
import importlib.util
import marshal
import struct
import sys
from pathlib import Path
from types import CodeType

import pytest

from infra.code import SERVICES, _CopiedPackage, keep_services

CLONE = Path(__file__).parents[3]
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


def pins(lock: str) -> dict[str, str]:
    lines = (CLONE / lock).read_text().splitlines()
    pairs = [line.split(" ")[0].split("==") for line in lines if "==" in line and line[0] != " "]
    return dict(pairs)


def test_functions_run_on_the_libraries_that_the_tests_run_on() -> None:
    layer, tested = pins("requirements/layer.txt"), pins("requirements.txt")

    assert {"boto3", "botocore", "urllib3", "aws-lambda-powertools"} <= layer.keys()
    assert {name: tested[name] for name in layer} == layer


def test_the_layer_keeps_the_services_that_are_called_and_no_other(tmp_path: Path) -> None:
    bootstrap = ast.parse((CLONE / "layers/sluice/python/sluice/bootstrap.py").read_text())
    called = {
        node.args[0].value
        for node in ast.walk(bootstrap)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"client", "boto3.client"}
        and isinstance(node.args[0], ast.Constant)
    }
    data = tmp_path / "botocore" / "data"
    for service in (*SERVICES, "quantumledger"):
        (data / service).mkdir(parents=True)
    (data / "endpoints.json").write_text("{}")

    keep_services(tmp_path)

    assert called == SERVICES
    assert {each.name for each in data.iterdir()} == {*SERVICES, "endpoints.json"}
