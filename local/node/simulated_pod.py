"""A pod without processes: it lasts as long as its annotation says, for tests at scale."""

from typing import Any

from local.node.pod_run import PodRun
from local.node.site import Site
from local.node.state import PodState

DURATION = "sluice.dev/simulated-duration"
EXIT_CODE = "sluice.dev/simulated-exit-code"
# Shorter pods are not worth a report that they run.
REPORTED_SECONDS = 0.2


def seconds(text: str) -> float:
    """`1.5` or `1.5s`. Raises ValueError."""
    return float(text.removesuffix("s"))


class SimulatedPod(PodRun):
    def __init__(self, site: Site, pod: dict[str, Any]) -> None:
        super().__init__(site, pod, PodState.of(pod))

    async def work(self) -> None:
        annotations = self.pod["metadata"].get("annotations", {})
        duration = seconds(annotations.get(DURATION, "0"))
        code = int(annotations.get(EXIT_CODE, "0"))
        for course in self.state.init:
            course.starts()
            course.ends(0)
        if self.stopping.is_set():
            return
        self.state.phase = "Running"
        for course in self.state.containers:
            course.starts()
        if duration > REPORTED_SECONDS:
            self.report()
        if duration > 0 and await self.pause(duration):
            code = 143
        for course in self.state.containers:
            course.ends(code)

    async def clean(self) -> None:
        """It leaves nothing."""

    def keep(self) -> None:
        """A new program lets the pod begin again."""

    def end(self, grace_seconds: float) -> None:
        """`stop` has woken the pod already; a simulated process obeys SIGTERM at once."""
