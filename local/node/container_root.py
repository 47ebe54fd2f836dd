"""What a container sees of the machine: its own root, /dev, /proc, mounts and host name.

Used by the keeper in the forked child, so it needs the standard library only and runs no other
program. The root is an overlay: the machine's file system below, read only, and a folder of the
container above. What the container writes stays in that folder.
"""

import contextlib
import ctypes
import errno
import os
import signal
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
READ_ONLY_PROC = ("sys", "sysrq-trigger", "irq", "bus")
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SECCOMP_ALLOW, SECCOMP_REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
IO_URING = (425, 427)  # io_uring_setup to io_uring_register, on every architecture
BPF_LOAD, BPF_AT_LEAST, BPF_MORE_THAN, BPF_RETURN = 0x20, 0x35, 0x25, 0x06

libc = ctypes.CDLL(None, use_errno=True)


def clone() -> int:
    """As os.fork, but the child is PID 1 in namespaces of its own (needs root)."""
    number = SYS_CLONE[os.uname().machine]
    pid: int = libc.syscall(number, NAMESPACES | signal.SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone with new namespaces")
    return pid


def join(pid: int) -> None:
    """Moves this process into the namespaces of a container; its next child is in them all."""
    descriptor = os.pidfd_open(pid)
    try:
        if libc.setns(descriptor, NAMESPACES):
            raise OSError(ctypes.get_errno(), "the container's namespaces cannot be entered")
    finally:
        os.close(descriptor)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(text) or None for text in (source, target, kind))
    if libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or source} at {target}: {os.strerror(number)}")


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Shows a file or folder at `target`, which is created if need be."""
    if stat.S_ISDIR(os.stat(source).st_mode):  # noqa: PTH116 - no pathlib in the keeper's child
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        with open(target, "ab"):  # noqa: PTH123
            pass
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def leave_shared_mounts() -> None:
    """What is mounted from now on is seen in this mount namespace only."""
    mount("", "/", flags=MS_REC | MS_PRIVATE)


def mount_root(root: Mapping[str, str]) -> None:
    """The overlay of a container at `root["merged"]`, for the mount namespace of the caller."""
    options = f"lowerdir=/,upperdir={root['upper']},workdir={root['work']}"
    mount("overlay", root["merged"], "overlay", options=options)


def show_root(layers: Mapping[str, str]) -> None:
    """For CRIU, which builds the restored container's mounts on this one."""
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare of the mount namespace")
    leave_shared_mounts()
    mount_root(layers)


def enter(container: Mapping[str, Any]) -> None:
    """Makes the container's root the root of this process, which is in its own namespaces."""
    leave_shared_mounts()
    mount_root(container["root"])
    with opened(container["binds"]) as sources:
        os.chdir(container["root"]["merged"])
        if libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."):
            raise OSError(ctypes.get_errno(), "pivot_root")
        mount_system()
        for wanted, source in zip(container["binds"], sources, strict=True):
            bind(f"/proc/self/fd/{source}", wanted["target"], read_only=wanted["read_only"])
    # The machine's root is stacked on the new one and is still the working folder.
    if libc.umount2(b".", MNT_DETACH):
        raise OSError(ctypes.get_errno(), "the machine's root cannot be detached")
    os.chdir("/")
    name = os.fsencode(container["hostname"])
    libc.sethostname(name, len(name))
    refuse_io_uring()


def refuse_io_uring() -> None:
    """Programs do without io_uring, as under containerd's default profile: CRIU cannot save it."""
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (BPF_LOAD, 0, 0, 0),  # the number of the system call
            (BPF_AT_LEAST, 0, 2, IO_URING[0]),
            (BPF_MORE_THAN, 1, 0, IO_URING[1]),
            (BPF_RETURN, 0, 0, SECCOMP_REFUSE),
            (BPF_RETURN, 0, 0, SECCOMP_ALLOW),
        )
    )
    code = ctypes.create_string_buffer(program)
    filters = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp filter")


@contextlib.contextmanager
def opened(binds: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """A file descriptor of each source, which can be bound where its path is not seen any more."""
    with contextlib.ExitStack() as stack:
        found = [os.open(wanted["source"], os.O_PATH | os.O_CLOEXEC) for wanted in binds]
        for descriptor in found:
            stack.callback(os.close, descriptor)
        yield found


def mount_system() -> None:
    """/proc, /sys and /dev as a container runtime makes them."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    for name in READ_ONLY_PROC:
        if os.path.exists(f"/proc/{name}"):  # noqa: PTH110
            bind(f"/proc/{name}", f"/proc/{name}", read_only=True)
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755,size=65536k")
    mask = os.umask(0)
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for name, target in LINKS.items():
        os.symlink(target, f"/dev/{name}")  # noqa: PTH211
    for name in ("pts", "shm"):
        os.mkdir(f"/dev/{name}")  # noqa: PTH102
    os.umask(mask)
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666")
    mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777")  # noqa: S108
