"""Everything that real kubelets need before the first of them starts."""

from pathlib import Path

from local.build import build
from local.errors import PreparationError
from local.kubelet_node import debian, machine
from local.toolchain import Progress


def prepare(cache: Path, progress: Progress) -> None:
    """Build what is not in the cache yet.

    Raises PreparationError, with one line that says what the machine lacks.
    """
    if lacking := machine.lacking():
        raise PreparationError(lacking)
    build(cache, progress, ["kubelet"])
    debian.prepare(cache, progress)
