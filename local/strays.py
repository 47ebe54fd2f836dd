"""Finds and kills processes that a stack left behind."""

import ctypes
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from local.kubelet_node import cgroups

MARK = "SLUICE_PART_OF"  # in the environment of every part and, inherited, of what it starts
PATIENCE_SECONDS = 5.0

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """On Linux, become the parent of every descendant whose own parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked(state: Path) -> list[psutil.Process]:
    """Every process of ours that belongs to the stack with this state folder, but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            of_this_stack = process.environ().get(MARK) == str(state)
            if process.pid != os.getpid() and of_this_stack and lives(process):
                found.append(process)
        except psutil.Error:  # gone meanwhile, or another user's
            continue
    return found


def kill_tree(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL; a process id that was given to another program meanwhile is left alone."""
    victims = [process for process in processes if lives(process)]
    for process in victims:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(map(lives, victims)) and time.monotonic() < deadline:
        time.sleep(0.01)


def lives(process: psutil.Process) -> bool:
    """Whether it still runs; a dead one that nobody has buried yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_marked(state: Path) -> int:
    """Kill until none is left, for the dying may still start children. Returns how many."""
    count = 0
    while found := marked(state):
        count += len(found)
        kill_tree(found)
    cgroups.remove(cgroups.name_of(state))  # what real kubelets leave when they are killed
    return count
