"""Reading a container's log file as `kubectl logs` asks: tail, limit, follow."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
FOLLOW_SECONDS = 0.2


def open_log(path: Path) -> BinaryIO:
    """Follows no symbolic link and waits for no pipe: the container could have put one there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no file any more")
    return os.fdopen(descriptor, "rb")


def tail_offset(path: Path, lines: int) -> int:
    """Where the last `lines` lines of the file begin, in bytes."""
    if lines <= 0:
        return path.lstat().st_size
    with open_log(path) as file:
        end = position = file.seek(0, 2)
        missing = lines
        while position > 0:
            size = min(CHUNK_BYTES, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            if position + size == end and block.endswith(b"\n"):
                missing += 1  # the newline that ends the last line starts none
            if block.count(b"\n") >= missing:
                at = len(block)
                for _ in range(missing):
                    at = block.rfind(b"\n", 0, at)
                return position + at + 1
            missing -= block.count(b"\n")
    return 0


async def stream(
    path: Path, *, tail: int | None, limit_bytes: int | None, follow: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The log's bytes; goes on while `follow` says that the container may still write."""
    rest = limit_bytes
    offset = 0 if tail is None else tail_offset(path, tail)
    with open_log(path) as file:
        file.seek(offset)
        while rest is None or rest > 0:
            more = follow()  # asked before reading, so that the last words are not lost
            block = file.read(CHUNK_BYTES if rest is None else min(CHUNK_BYTES, rest))
            if block:
                rest = None if rest is None else rest - len(block)
                yield block
            elif more:
                await asyncio.sleep(FOLLOW_SECONDS)
            else:
                return
