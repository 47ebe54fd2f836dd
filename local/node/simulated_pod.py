"""A pod without processes: it lasts as long as its annotation says, for tests at scale."""

from typing import Any

from local.node.environment import sources_of
from local.node.pod_run import PodRun
from local.node.site import Site
from local.node.state import PodState
from local.node.volumes import fetch_sources

DURATION = "sluice.dev/simulated-duration"
EXIT_CODE = "sluice.dev/simulated-exit-code"
# Shorter pods are not worth a report that they run.
REPORTED_SECONDS = 0.2
RETRY_SECONDS = 1.0


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
        await self._await_configuration()
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

    async def _await_configuration(self) -> None:
        """As a kubelet, starts no container before the ConfigMaps that it reads exist."""
        needed = {each for one in self.pod["spec"]["containers"] for each in sources_of(one)}
        namespace = self.pod["metadata"]["namespace"]
        while needed and not self.stopping.is_set():
            found = await self.site.call(fetch_sources, self.site.api, namespace, needed)
            missing = [
                f"{kind.lower()} {name!r}" for (kind, name), data in found.items() if data is None
            ]
            if not missing:
                return
            for course in self.state.containers:
                course.waits("CreateContainerConfigError", f"{', '.join(missing)} not found")
            self.report()
            await self.pause(RETRY_SECONDS)

    async def clean(self) -> None:
        """It leaves nothing."""

    def keep(self) -> None:
        """A new program lets the pod begin again."""

    def end(self, grace_seconds: float) -> None:
        """`stop` has woken the pod already; a simulated process obeys SIGTERM at once."""
