"""A deleted file that is open, a memfd, shared memory, locks, a FIFO, a UNIX socket pair."""

import fcntl
import mmap
import os
import socket
import struct
import sys
import time
from pathlib import Path

deleted = Path("/tmp/deleted").open("w+")
deleted.write("written before it was deleted")
deleted.flush()
Path("/tmp/deleted").unlink()
memory = os.memfd_create("state")
os.write(memory, b"x" * 100_000)
shared = Path("/dev/shm/shared")
shared.write_bytes(bytes(1 << 20))
with shared.open("r+b") as file:
    mapped = mmap.mmap(file.fileno(), 1 << 20)
flocked, locked = Path("/tmp/flocked").open("w"), Path("/tmp/locked").open("w")
fcntl.flock(flocked, fcntl.LOCK_EX)
fcntl.lockf(locked, fcntl.LOCK_EX, 10)
os.mkfifo("/tmp/fifo")
fifo = os.open("/tmp/fifo", os.O_RDWR)
pair = socket.socketpair()
pair[0].send(b"waiting to be read")
os.write(fifo, b"waiting too")
listening = socket.socket(socket.AF_UNIX)
listening.bind("/tmp/socket")
listening.listen()


def holds_locks() -> None:
    """Asked by another process: locks do not hinder their owner."""
    child = os.fork()
    if child == 0:
        try:
            fcntl.flock(Path("/tmp/flocked").open("w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os._exit(1)
        except BlockingIOError:
            pass
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0)
        with Path("/tmp/locked").open("w") as other:
            answer = fcntl.fcntl(other, fcntl.F_GETLK, asked)
        os._exit(0 if struct.unpack("hhqqi", answer)[0] == fcntl.F_WRLCK else 2)
    assert os.waitpid(child, 0)[1] == 0, "locks"


for step in range(int(sys.argv[1])):
    deleted.seek(0)
    assert deleted.read() == "written before it was deleted", "deleted file"
    assert os.fstat(deleted.fileno()).st_nlink == 0
    assert os.pread(memory, 100_001, 0) == b"x" * 100_000, "memfd"
    assert mapped[:8] == struct.pack("q", step), "shared memory"
    mapped[:8] = struct.pack("q", step + 1)
    assert shared.read_bytes()[:8] == struct.pack("q", step + 1), "shared memory as a file"
    holds_locks()
    assert pair[1].recv(64, socket.MSG_PEEK) == b"waiting to be read", "socket pair"
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/socket")
    listening.accept()[0].close()
    client.close()
    print("ok", step, flush=True)
    time.sleep(0.2)
assert os.read(fifo, 64) == b"waiting too", "FIFO"
