"""The builder leaves whole programs or none, with a stand-in for `go`."""

import stat

import pytest

from local.build import MODULES, Builder, binary, build, explained, missing
from local.errors import PreparationError

ETCD = MODULES[0]
# Writes what `go build -o FILE` was asked for; `mod download` describes a module beside it.
WORKING_GO = """#!/bin/sh
case "$1 $2" in
  "mod download") echo "{\\"GoMod\\": \\"$(dirname "$0")/published.mod\\"}" ;;
  "mod tidy") touch go.sum ;;
  build*) shift; while [ "$1" != -o ]; do shift; done; echo program > "$2" ;;
esac
"""
FAILING_GO = """#!/bin/sh
case "$1 $2" in
  "mod download") echo "{\\"GoMod\\": \\"$(dirname "$0")/published.mod\\"}" ;;
  "mod tidy") touch go.sum ;;
  build*) shift; while [ "$1" != -o ]; do shift; done; echo half > "$2"
    echo "etcd.go:1: no space left on device" >&2; exit 1 ;;
esac
"""


def a_go(folder, script):
    folder.mkdir()
    (folder / "published.mod").write_text(
        "module example\n\ngo 1.26\n\nreplace (\n\tk8s.io/api => ./staging/k8s.io/api\n)\n"
    )
    program = folder / "go"
    program.write_text(script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_a_built_program_is_in_the_cache_under_its_version(tmp_path, cache) -> None:
    said = []
    builder = Builder(cache, said.append)

    builder.build_module(a_go(tmp_path / "go", WORKING_GO), ETCD, ["etcd"])

    assert binary(cache, "etcd").read_text() == "program\n"
    assert missing(cache, ["etcd"]) == []
    assert any("etcd-v3.6.8: 0 MB in" in line for line in said)


def test_a_failed_build_leaves_no_program_and_says_what_to_do(tmp_path, cache) -> None:
    builder = Builder(cache, print)

    with pytest.raises(PreparationError, match=r"(?s)building etcd failed.*the disk is full"):
        builder.build_module(a_go(tmp_path / "go", FAILING_GO), ETCD, ["etcd"])

    assert missing(cache, ["etcd"]) == ["etcd"]


def test_after_a_failure_the_next_build_succeeds(tmp_path, cache) -> None:
    builder = Builder(cache, print)
    with pytest.raises(PreparationError):
        builder.build_module(a_go(tmp_path / "broken", FAILING_GO), ETCD, ["etcd"])

    builder.build_module(a_go(tmp_path / "go", WORKING_GO), ETCD, ["etcd"])

    assert binary(cache, "etcd").read_text() == "program\n"


def test_staging_repositories_are_replaced_by_their_releases(tmp_path, cache) -> None:
    kubernetes = MODULES[1]

    Builder(cache, print).build_module(a_go(tmp_path / "go", WORKING_GO), kubernetes, ["kubelet"])

    written = (cache / "src" / "k8s.io_kubernetes" / "v1.36.3" / "go.mod").read_text()
    assert "replace k8s.io/api => k8s.io/api v0.36.3" in written
    assert "require k8s.io/kubernetes v1.36.3" in written


def test_what_is_there_is_not_built_again(cache) -> None:
    target = binary(cache, "etcd")
    target.parent.mkdir(parents=True)
    target.write_text("kept")
    said = []

    build(cache, said.append, ["etcd"])

    assert target.read_text() == "kept"
    assert said == []


def test_karpenter_without_its_definitions_is_missing(cache) -> None:
    target = binary(cache, "karpenter")
    target.parent.mkdir(parents=True)
    target.write_text("program")

    assert missing(cache, ["karpenter"]) == ["karpenter"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("dial tcp: lookup proxy.golang.org: no such host", "GOPROXY"),
        ("write: no space left on device", "SLUICE_CACHE"),
        ("compile: signal: killed", "memory"),
        ("syntax error", "unexpected"),
    ],
)
def test_a_failure_comes_with_advice(error, advice) -> None:
    assert advice in explained("building etcd", error)
    assert error in explained("building etcd", error)
