"""The exit codes that scripts may rely on."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Codes of the `sluice` command; 100 to 103 agree with SkyPilot's."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    REFUSED = 5
    KEY_REUSED = 6
    UNAVAILABLE = 7
    WORKLOAD_FAILED = 100
    NOT_FINISHED = 101
    WORKLOAD_NOT_FOUND = 102
    WORKLOAD_CANCELLED = 103
    WORKLOAD_REJECTED = 104
    RECOVERY_EXHAUSTED = 105
    INTERRUPTED = 130
