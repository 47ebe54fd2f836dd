"""Becomes another program that the kernel kills, on Linux, when its parent dies.

    python -I -S die_with_parent.py PARENT_PID PROGRAM [ARGUMENT …]

The parent must start it from a thread that lives on: for the kernel, that thread is the parent.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main()
