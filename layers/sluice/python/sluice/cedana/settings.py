"""What a Cluster object says of Cedana."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sluice.core.config.document import Fields

_ADDRESS: Final = re.compile(
    r"https://[a-zA-Z0-9.-]+(:\d+)?|http://(127\.0\.0\.1|localhost)(:\d+)?", re.ASCII
)
_SECRET: Final = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:\S+", re.ASCII)


@dataclass(frozen=True, slots=True)
class CedanaServiceSettings:
    """Cedana's service, what it calls this cluster, and the secret (ARN) that holds the token."""

    url: str
    cluster_id: str
    token_secret: str


def read_settings(fields: Fields) -> CedanaServiceSettings:
    """`spec.cedana` of a Cluster."""
    found = CedanaServiceSettings(
        url=fields.text("url", required=True).rstrip("/"),
        cluster_id=fields.text("clusterId", required=True),
        token_secret=fields.text("tokenSecret", required=True),
    )
    if found.url and not _ADDRESS.fullmatch(found.url):
        fields.wrong("url", "must be https://HOST, without a path")
    if found.token_secret and not _SECRET.fullmatch(found.token_secret):
        fields.wrong("tokenSecret", "must be the ARN of a secret of AWS Secrets Manager")
    fields.close()
    return found
