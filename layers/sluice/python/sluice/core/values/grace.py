"""The time between SIGTERM and SIGKILL that a pod may have."""

from typing import Final

DEFAULT_GRACE_SECONDS: Final = 30
"""Source: Kubernetes, `terminationGracePeriodSeconds`."""
MAX_GRACE_SECONDS: Final = 90
"""Of the 120 seconds between a spot notice and the end; also in schemas/workload.schema.json."""
