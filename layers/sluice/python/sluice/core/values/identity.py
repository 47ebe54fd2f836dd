"""Names that everybody can compute: workload ids, Job names, and digests of documents."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any, Final

ID_LENGTH: Final = 13
_ID: Final = re.compile(rf"[a-z2-7]{{{ID_LENGTH}}}", re.ASCII)


def workload_id(namespace: str, key: str) -> str:
    """The 13 characters `[a-z2-7]` that name the submission `key` of a namespace."""
    digest = hashlib.sha256(f"{namespace}\0{key}".encode()).digest()
    return base64.b32encode(digest[:8]).decode().rstrip("=").lower()


def is_workload_id(text: str) -> bool:
    """Whether a text has the shape of a workload's id."""
    return _ID.fullmatch(text) is not None


def elsewhere_id(home: str, expected: str) -> str:
    """The id of a submission to a namespace of somebody else, which is always REJECTED.

    `expected` is the id that its sender computes. That one is the other tenant's to give, so the
    record lies in the sender's `home`, under a key that no submission can have.
    """
    return workload_id(home, f"elsewhere/{expected}")


def job_name(workload: str, generation: int) -> str:
    """The name of the Job (or JobSet) that runs one generation of a workload."""
    return f"w-{workload}-g{generation}"


def volume_name(workload: str, volume: str) -> str:
    """The name of the PersistentVolume, and of the claim, of one volume of a workload."""
    return f"w-{workload}-{volume}"


def canonical_json(value: Any) -> str:
    """The one text of a JSON value: keys sorted, no blanks, no numbers that are not finite."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def digest(value: Any) -> str:
    """Sha256, in hexadecimal, of the canonical JSON of a document."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
