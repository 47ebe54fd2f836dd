"""Mount paths without a mount namespace: occurrences in the manifest become the pod's folders.

A program that reads its paths from its command line or environment, as jobs should, finds its
volumes there. One that has `/data` written into its code does not: it can use the variable
`SLUICE_VOLUME_<NAME>` or run on `kubelet` nodes.
"""

import re
from collections.abc import Mapping
from pathlib import Path


def rewrite(text: str, mounts: Mapping[str, Path]) -> str:
    """Replaces every mount path that stands as a whole path or as the start of one.

    `mounts` maps a mountPath to the folder that holds the volume; the longest path wins.
    """
    if not mounts:
        return text
    paths = sorted((path.rstrip("/") for path in mounts), key=len, reverse=True)
    folders = {path.rstrip("/"): str(folder) for path, folder in mounts.items()}
    pattern = r"(?<![\w./~-])(" + "|".join(map(re.escape, paths)) + r")(?=/|[^\w./-]|\.?$|\.[^\w])"
    return re.sub(pattern, lambda match: folders[match[1]], text)


def volume_variable(name: str) -> str:
    """The environment variable that holds a volume's folder: SLUICE_VOLUME_MY_DATA for my-data."""
    return "SLUICE_VOLUME_" + re.sub(r"\W", "_", name).upper()
