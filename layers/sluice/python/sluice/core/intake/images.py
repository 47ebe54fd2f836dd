"""Which container images a tenant may run: an allow-list of repositories, and a digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    r"(?:(?P<registry>(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?\.)+[a-zA-Z0-9-]*[a-zA-Z0-9]"
    r"(?::\d{1,5})?|localhost(?::\d{1,5})?|[a-zA-Z0-9-]+:\d{1,5})/)?"
    rf"(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@sha256:(?P<digest>[0-9a-f]{64}))?",
    re.ASCII,
)
_LONGEST: Final = 512
_DEFAULT_REGISTRY: Final = "docker.io"


@dataclass(frozen=True, slots=True)
class Image:
    """An image reference in full, as the container runtime resolves short names."""

    registry: str
    repository: str
    digest: str | None


def parse(reference: str) -> Image | None:
    """The image that a reference names, or None if it is not one."""
    match = _REFERENCE.fullmatch(reference) if len(reference) <= _LONGEST else None
    if match is None:
        return None
    registry, repository = match["registry"], match["repository"]
    if registry is None:
        registry = _DEFAULT_REGISTRY
        repository = repository if "/" in repository else f"library/{repository}"
    return Image(registry.lower(), repository, match["digest"])


def refusal(reference: str, allowed: Sequence[str], *, require_digest: bool) -> str | None:
    """Why an image may not run, with what to change; None if it may."""
    image = parse(reference)
    if image is None:
        return "is not an image; write REGISTRY/REPOSITORY@sha256:DIGEST with 64 hexadecimal digits"
    if not any(_matches(image, glob) for glob in allowed):
        name = f"{image.registry}/{image.repository}"
        return f"{name} is not on the tenant's list; use one of {', '.join(allowed) or 'none'}"
    if require_digest and image.digest is None:
        return "needs a digest, since a tag may change; write REGISTRY/REPOSITORY@sha256:DIGEST"
    return None


def _matches(image: Image, glob: str) -> bool:
    """Registry and repository each against its part, so that no `*` reaches over the border."""
    registry, _, repository = glob.partition("/")
    return fnmatchcase(image.registry, registry) and fnmatchcase(
        image.repository, repository or "*"
    )
