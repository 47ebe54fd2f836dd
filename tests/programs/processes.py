"""180 MB of random memory, a forked child on a pipe, a subprocess, a thread, a timer, a file.

python processes.py STEPS [MEGABYTES]
"""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

STEPS, MEGABYTES = int(sys.argv[1]), int((*sys.argv, "180")[2])
memory = [os.urandom(1 << 20) for _ in range(MEGABYTES)]


def digest() -> str:
    summed = hashlib.sha256()
    for block in memory[:: max(1, MEGABYTES // 16)]:
        summed.update(block)
    return summed.hexdigest()


known = digest()
source, sink = os.pipe()
child = os.fork()
if child == 0:
    number = 0
    while True:
        number += 1
        os.write(sink, b"%d\n" % number)
        time.sleep(0.05)
pipe = os.fdopen(source)
reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
counted = {"thread": 0, "timer": 0}


def work() -> None:
    while True:
        counted["thread"] += 1
        time.sleep(0.01)


threading.Thread(target=work, daemon=True).start()
signal.signal(signal.SIGALRM, lambda *_: counted.update(timer=counted["timer"] + 1))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
note = Path("/tmp/processes.txt").open("w+")
heard = 0
for step in range(STEPS):
    before = dict(counted)
    time.sleep(0.2)
    assert digest() == known, "memory"
    for _ in range(3):
        heard += 1
        assert int(pipe.readline()) == heard, "the child's pipe"
    print("line", step, file=reader.stdin, flush=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == f"line {step}\n", "the subprocess"
    deadline = time.monotonic() + 10  # the machine may be busy
    while any(counted[name] == before[name] for name in counted):
        assert time.monotonic() < deadline, counted
        time.sleep(0.05)
    note.write(f"{step}\n")
    note.flush()
    lines = Path("/tmp/processes.txt").read_text().splitlines()
    assert lines == [str(n) for n in range(step + 1)], "the file below /tmp"
    print("ok", step, flush=True)
