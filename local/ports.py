"""Free ports of 127.0.0.1, the same ones again when a kept state is resumed."""

import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from local.files import write_json


def choose_ports(path: Path, names: Iterable[str], fixed: dict[str, int]) -> dict[str, int]:
    """One port for each name; written to `path` and taken from there the next time.

    Addresses end up in what is deployed (queue URLs, cluster endpoints), so a resumed state needs
    its old ones. Raises OSError when one of these, or a fixed one, is in use.
    """
    wanted = (json.loads(path.read_text()) if path.exists() else {}) | fixed
    ports = {}
    with ExitStack() as held:  # all of them at once, so that none is given out twice
        for name in names:
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted.get(name, 0)))
            except OSError as error:
                raise OSError(
                    f"port {wanted[name]} for {name} is in use; stop what listens there, "
                    "or start with --fresh"
                ) from error
            ports[name] = int(probe.getsockname()[1])
    write_json(path, ports)
    return ports
