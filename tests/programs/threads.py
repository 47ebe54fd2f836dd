"""200 threads, each with a number that it counts on."""

import sys
import threading
import time

counted = [0] * 200
started = threading.Barrier(201)


def work(number: int) -> None:
    started.wait()
    while True:
        counted[number] += 1
        time.sleep(0.05)


for number in range(200):
    threading.Thread(target=work, args=(number,), daemon=True).start()
started.wait()
for step in range(int(sys.argv[1])):
    before = list(counted)
    time.sleep(0.4)
    assert len(threading.enumerate()) == 201
    deadline = time.monotonic() + 10  # the machine may be busy
    while any(now == then for now, then in zip(counted, before, strict=True)):
        assert time.monotonic() < deadline, "a thread stands"
        time.sleep(0.05)
    print("ok", step, flush=True)
