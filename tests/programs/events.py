"""inotify, timerfd, eventfd, epoll, signalfd's mask and a POSIX timer."""

import ctypes
import os
import select
import signal
import struct
import sys
import time
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
CLOCK_MONOTONIC, IN_CREATE = 1, 0x100


class Interval(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("s", "ns", "value_s", "value_ns")]


Path("/tmp/watched").mkdir()
watching = libc.inotify_init()
assert libc.inotify_add_watch(watching, b"/tmp/watched", IN_CREATE) > 0
timer = libc.timerfd_create(CLOCK_MONOTONIC, 0)
counter = libc.eventfd(0, 0)
poll = select.epoll()
for descriptor in (watching, timer, counter):
    poll.register(descriptor, select.EPOLLIN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for step in range(int(sys.argv[1])):
    Path(f"/tmp/watched/{step}").touch()
    # Not periodic: CRIU restores a periodic one that has expired unread as one that stands.
    libc.timerfd_settime(timer, 0, ctypes.byref(Interval(0, 0, 0, 50_000_000)), None)
    os.write(counter, struct.pack("Q", 7))
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.2)
    ready, deadline = set(), time.monotonic() + 10  # the machine may be busy
    while ready != {watching, timer, counter}:
        ready = {descriptor for descriptor, _ in poll.poll(0.5)}
        if watching not in ready:  # CRIU drops events that wait to be read, and says so
            Path(f"/tmp/watched/{step}").unlink()
            Path(f"/tmp/watched/{step}").touch()
        assert time.monotonic() < deadline, (ready, watching, timer, counter)
    assert str(step).encode() in os.read(watching, 4096), "inotify told of another file"
    assert struct.unpack("Q", os.read(timer, 8))[0] > 0
    assert struct.unpack("Q", os.read(counter, 8))[0] == 7
    assert signal.sigtimedwait([signal.SIGUSR1], 1) is not None
    print("ok", step, flush=True)
