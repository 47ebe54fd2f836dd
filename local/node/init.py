"""The first process of a container: passes signals on and collects the dead.

    python -I -S init.py PROGRAM [ARGUMENT ...]

It is PID 1 of a PID namespace of its own, where a program that does not handle SIGTERM would
ignore it. It ends with its program's exit code, or 128 + n after signal n. An error of the
program's start is written to file descriptor 3, which is closed once the program runs.
"""

import os
import signal
import sys

READY = 3
PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)


def main() -> None:
    child = os.fork()
    if child == 0:
        os.set_inheritable(READY, False)
        try:
            os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the pod's program, not a shell
        except OSError as error:
            os.write(READY, str(error).encode())
        os._exit(127)
    os.close(READY)
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: os.kill(child, received))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
