"""The builder leaves whole programs or none, with a stand-in for `go`."""

import stat

import pytest

from local.build import Builder, build, explained
from local.errors import PreparationError
from local.modules import MODULES, Change, Module, binary, missing

ETCD = MODULES[0]
# Describes modules that lie beside it; `go build -o FILE` is left to each of the two.
DESCRIBE = r"""#!/bin/sh
here=$(dirname "$0")
case "$1 $2" in
  "mod download") printf '{"GoMod": "%s/published.mod", "Dir": "%s/module"}' "$here" "$here" ;;
  "mod tidy") touch go.sum ;;
  build*) shift; while [ "$1" != -o ]; do shift; done; BUILD ;;
esac
"""
WORKING_GO = DESCRIBE.replace("BUILD", 'echo program > "$2"')
LOOPBACK = {'":%d"': '"127.0.0.1:%d"'}
FAILING_GO = DESCRIBE.replace("BUILD", 'echo half > "$2"; echo "no space left" >&2; exit 1')


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


def test_a_change_to_a_dependency_is_made_in_a_copy_that_takes_its_place(tmp_path, cache) -> None:
    go = a_go(tmp_path / "go", WORKING_GO)
    original = tmp_path / "go" / "module"
    original.mkdir()
    (original / "operator.go").write_text('address := ":%d"')
    change = Change("example.com/operator", "v1.0.0", "operator.go", LOOPBACK)
    module = Module("example.com/main", "v1.0.0", {"etcd": "example.com/main"}, change=change)

    Builder(cache, print).build_module(go, module, ["etcd"])

    folder = cache / "src" / "example.com_main" / "v1.0.0"
    assert (folder / "changed" / "operator.go").read_text() == 'address := "127.0.0.1:%d"'
    assert (original / "operator.go").read_text() == 'address := ":%d"'
    assert "replace example.com/operator => ./changed" in (folder / "go.mod").read_text()


def test_a_change_that_no_longer_fits_stops_the_build(tmp_path, cache) -> None:
    go = a_go(tmp_path / "go", WORKING_GO)
    (tmp_path / "go" / "module").mkdir()
    (tmp_path / "go" / "module" / "operator.go").write_text("rewritten")
    change = Change("example.com/operator", "v1.0.0", "operator.go", LOOPBACK)
    module = Module("example.com/main", "v1.0.0", {"etcd": "example.com/main"}, change=change)

    with pytest.raises(PreparationError, match=r"operator\.go of example\.com/operator"):
        Builder(cache, print).build_module(go, module, ["etcd"])


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
        ("dial tcp: lookup modules.example.org: no such host", "GOPROXY"),
        ("write: no space left on device", "SLUICE_CACHE"),
        ("compile: signal: killed", "memory"),
        ("syntax error", "unexpected"),
    ],
)
def test_a_failure_comes_with_advice(error, advice) -> None:
    assert advice in explained("building etcd", error)
    assert error in explained("building etcd", error)
