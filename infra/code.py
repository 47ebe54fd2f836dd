"""Builds the code of the Lambdas without Docker, compiled so that it starts fast."""

import compileall
import shutil
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import aws_cdk as cdk
import jsii
import sluice
from aws_cdk import aws_lambda as lambda_
from sluice.configuration import Runtime

_ROOT = Path(__file__).parents[1]
_LEFT_OUT = ("__pycache__", "*.egg-info")
# Parts of the package `sluice` that no Lambda imports: the client, and the folders of a wheel.
_NOT_DEPLOYED = ("client", "_tools", "__main__.py", "py.typed")
_WHEEL_PLATFORMS = {"arm64": "aarch64-manylinux2014", "x86_64": "x86_64-manylinux2014"}


def handlers(runtime: Runtime) -> lambda_.Code:
    """Pack the folder `functions/` as the package `functions`."""
    source = _ROOT / "functions"
    return _code(source, _CopiedPackage(source, into="functions", home="/var/task"), runtime)


# The services of `sluice.bootstrap`; a test compares.
SERVICES = frozenset(
    {
        *("dynamodb", "ec2", "ecr", "eks", "events", "lambda", "pricing", "s3"),
        *("secretsmanager", "sqs", "stepfunctions", "sts"),
    }
)


def sluice_layer(runtime: Runtime) -> lambda_.Code:
    """Pack our own library: `sluice` below `python/`."""
    source = Path(sluice.__file__).parent
    bundling = _CopiedPackage(source, into="python/sluice", home="/opt", left_out=_NOT_DEPLOYED)
    return _code(source, bundling, runtime, left_out=_NOT_DEPLOYED)


def third_party_layer(runtime: Runtime) -> lambda_.Code:
    """Pack the locked requirements of the Lambdas, below `python/`."""
    lock = _ROOT / "requirements" / "layer.txt"
    return _code(lock.parent, _InstalledLock(lock, runtime), runtime, only=lock.name)


def _code(
    source: Path,
    bundling: cdk.ILocalBundling,
    runtime: Runtime,
    *,
    only: str | None = None,
    left_out: tuple[str, ...] = (),
) -> lambda_.Code:
    excluded = [*(f"**/{pattern}" for pattern in _LEFT_OUT), *left_out]
    return lambda_.Code.from_asset(
        str(source),
        exclude=["*", f"!{only}"] if only else excluded,
        # The result depends on the source and on the environment below, which counts in the hash;
        # hashing the output instead would bundle on every synthesis.
        asset_hash_type=cdk.AssetHashType.SOURCE,
        bundling=cdk.BundlingOptions(
            # Mandatory, but never pulled: our bundling raises where it could give up.
            image=cdk.DockerImage.from_registry("unused"),
            environment={"PYTHON": runtime.python, "ARCHITECTURE": runtime.architecture},
            local=bundling,
        ),
    )


@jsii.implements(cdk.ILocalBundling)
class _CopiedPackage:
    """Copies a folder; `left_out` are names at its top."""

    def __init__(
        self, source: Path, *, into: str, home: str, left_out: tuple[str, ...] = ()
    ) -> None:
        self._source, self._into, self._home = source, into, home
        self._left_out = left_out

    def try_bundle(self, output_dir: str, *_options: Any, **_named_options: Any) -> bool:
        target = Path(output_dir, self._into)
        shutil.copytree(self._source, target, ignore=self._ignored)
        _compile(Path(output_dir), home=self._home)
        return True

    def _ignored(self, folder: str, names: list[str]) -> set[str]:
        everywhere = shutil.ignore_patterns(*_LEFT_OUT)(folder, names)
        return everywhere | (set(self._left_out) if Path(folder) == self._source else set())


@jsii.implements(cdk.ILocalBundling)
class _InstalledLock:
    """Installs a lock file's wheels for the Lambdas' architecture."""

    def __init__(self, lock: Path, runtime: Runtime) -> None:
        self._lock, self._runtime = lock, runtime

    def try_bundle(self, output_dir: str, *_options: Any, **_named_options: Any) -> bool:
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "install", "--quiet"),
                *("--no-installer-metadata", "--require-hashes", "--only-binary", ":all:"),
                *("--python-version", self._runtime.python),
                *("--python-platform", _WHEEL_PLATFORMS[self._runtime.architecture]),
                *("--target", str(Path(output_dir, "python"))),
                *("--requirement", str(self._lock)),
            ],
            check=True,
        )
        keep_services(Path(output_dir, "python"))
        _compile(Path(output_dir), home="/opt")
        return True


def keep_services(packages: Path) -> None:
    """Remove the descriptions of services that no function calls: most of what botocore takes."""
    for package in ("botocore", "boto3"):
        for service in Path(packages, package, "data").glob("*/"):
            if service.name not in SERVICES:
                shutil.rmtree(service)


def require_matching_interpreter(runtime: Runtime) -> None:
    """Raise ValueError unless this interpreter writes bytecode for the Lambdas' runtime."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if runtime.python != own:
        raise ValueError(
            f"runtime.python: this is Python {own}, whose bytecode Python {runtime.python} cannot "
            f"read; set it to {own}, or deploy with Python {runtime.python}"
        )


def _compile(folder: Path, *, home: str) -> None:
    """Write bytecode that no time stamp can void: deployed folders are read-only, dated 1980."""
    compiled = compileall.compile_dir(
        folder,
        quiet=1,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        stripdir=str(folder),
        prependdir=home,
    )
    if not compiled:
        raise RuntimeError(f"{folder}: some of the code does not compile; see above")
