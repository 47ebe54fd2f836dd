"""Brings the embedded default up and down, and steers its parts.

    sluice local up|down|status|logs|kubeconfig|stop|start|restart     # or python -m cli.main …

`up` starts, on 127.0.0.1 only: MiniStack (AWS), moto with a market (EC2), etcd, the API server
with a webhook for EKS tokens, controllers, scheduler, Karpenter and the node program; applies
local/manifests; deploys the stacks with the real CDK; writes `.local/endpoints.json` and
`.local/kubeconfig`; and returns. The parts go on under a supervisor (`local.supervisor`) until
`down`. When `up` is interrupted or killed, they stop.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from local.add_ons import kinds_of, programs_of
from local.apply import read_manifests
from local.build import build
from local.endpoints import Endpoints
from local.errors import StackError
from local.files import write_json
from local.kubelet_node import agent_image
from local.kubelet_node import preparation as kubelets
from local.kubelet_node.registry import Images
from local.modules import CONTROL_PLANE
from local.node import preparation as processes
from local.parts import Health
from local.settings import CLONE, MANIFESTS, Layout, NodeKind, Settings
from local.strays import kill_marked, kill_tree
from local.toolchain import environment, locked, tool_folders

STOP_SECONDS = 60.0  # every part has a grace of its own, none of more than 10 s
CHANGE_SECONDS = 60.0  # for a single part to stop or to become ready
POLL_SECONDS = 0.05
Progress = Callable[[str], None]


def prepare(
    cache: Path,
    progress: Progress,
    nodes: NodeKind = "process",
    add_ons: Iterable[str] = (),
) -> None:
    """Install and build everything that `up` needs. Raises PreparationError."""
    if nodes == "kubelet":
        kubelets.prepare(cache, progress)
    elif nodes == "process":
        processes.prepare(cache, progress)
    environment(cache, "ministack", progress)
    tool_folders(cache, progress)
    build(cache, progress, (*CONTROL_PLANE, *programs_of(add_ons)))


def is_running(layout: Layout) -> bool:
    """Whether a supervisor holds the lock."""
    if not layout.lock.exists():
        return False
    with layout.lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def up(
    settings: Settings, progress: Progress, *, fresh: bool = False, deploy: bool = True
) -> Endpoints:
    """Start the stack, or find it running, and deploy into it.

    Raises PreparationError and StackError; when only the deployment fails, the parts run on, so
    that one can look.
    """
    layout = Layout(settings.state)
    make_folder(layout)
    prepare(settings.cache, progress, settings.nodes, settings.add_ons)
    with locked(layout.state / "up.lock", progress):
        if is_running(layout):
            if not layout.endpoints.exists():
                raise StackError(f"the stack in {layout.state} is stopping: try again")
            require_whole(layout)
            progress("the stack runs already")
            if fresh or Settings.read(layout.settings) != settings:
                progress(
                    "it goes on as it is; to start it in another way, `sluice local down` first"
                )
            endpoints = Endpoints.read(layout.endpoints)
            if deploy:
                deploy_stacks(endpoints, progress)
            return endpoints
        failure: StackError | None = None
        with started(settings, progress, fresh=fresh):
            endpoints = Endpoints.read(layout.endpoints)
            if deploy:
                try:
                    deploy_stacks(endpoints, progress)
                except StackError as error:  # raised again below, once the parts are kept
                    failure = error
        if failure:
            raise failure
        return endpoints


def require_whole(layout: Layout) -> None:
    """Raises StackError when a part has failed that cannot be started again."""
    failed = [entry["name"] for entry in entries(layout) if entry["state"] == "failed"]
    if failed:
        raise StackError(
            f"the stack runs, but {', '.join(failed)} failed and stays down: see "
            f"`sluice local logs {failed[0]}`, then `sluice local down` and `up`"
        )


def make_folder(layout: Layout) -> None:
    """The state folder, or StackError when it holds something of somebody else's."""
    layout.state.mkdir(parents=True, exist_ok=True)
    ours = layout.lock.exists() or not any(layout.state.iterdir())
    if not ours:
        raise StackError(
            f"{layout.state} is neither empty nor the folder of a stack; `up` would delete what "
            "is in it. Choose another one (SLUICE_STATE)"
        )
    layout.lock.touch(0o600)


@contextlib.contextmanager
def started(settings: Settings, progress: Progress, *, fresh: bool) -> Iterator[None]:
    """A running stack; it survives the block if that ends without an exception."""
    layout = Layout(settings.state)
    lock = os.open(layout.lock, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kill_marked(layout.state)
        resumed = not fresh and (layout.kept.exists() or layout.spare.exists())
        if resumed:
            set_aside(layout)
        kept = (layout.data, layout.spare, layout.certs, layout.ports) if resumed else ()
        forget(layout, but=tuple(path.name for path in kept))
        for folder in (layout.logs, layout.held, layout.data):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(layout.settings, settings.document())
        with layout.log("supervisor").open("ab") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "local.supervisor", str(layout.state)],
                cwd=CLONE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(lock,),  # it is locked until guard and supervisor are both gone
                start_new_session=True,
                text=True,
            )
    finally:
        os.close(lock)
    try:
        await_up(supervisor, layout, progress)
        yield
    except BaseException:
        # The end of its input tells the supervisor to stop everything.
        supervisor.communicate()
        if resumed:
            progress("what was kept is still there for the next `sluice local up`")
        raise
    let_go(supervisor)
    shutil.rmtree(layout.spare, ignore_errors=True)


def set_aside(layout: Layout) -> None:
    """Let the parts begin with a copy: an `up` that does not end may leave anything in it."""
    if layout.spare.exists():
        shutil.rmtree(layout.data, ignore_errors=True)
    else:
        layout.data.rename(layout.spare)
    copy = ["cp", "--archive", "--reflink=auto", str(layout.spare), str(layout.data)]
    subprocess.run(copy, check=True)


def await_up(supervisor: subprocess.Popen[str], layout: Layout, progress: Progress) -> None:
    """Pass the supervisor's words on until it says that all is up. Raises StackError."""
    failure = f"the supervisor died; see {layout.log('supervisor')}"
    for line in supervisor.stdout or ():
        progress(line.rstrip())
        _, _, event = line.rstrip().partition(" s  ")
        if event == "up":
            return
        if event.startswith("failed: "):
            failure = event.removeprefix("failed: ")
    raise StackError(failure)


def let_go(supervisor: subprocess.Popen[str]) -> None:
    """Tell the supervisor to go on alone."""
    if supervisor.stdin and supervisor.stdout:
        supervisor.stdin.write("keep\n")
        supervisor.stdin.close()
        supervisor.stdout.close()
    supervisor.returncode = 0  # or Popen would complain that nobody waited for it


def deploy_stacks(endpoints: Endpoints, progress: Progress) -> None:
    # Imported here, because both load boto3, and starting takes long enough.
    from local.administrator import give_access  # noqa: PLC0415
    from local.deploy import DeployError, deploy  # noqa: PLC0415

    began = time.monotonic()
    layout = Layout(Path(endpoints.state))
    try:
        deploy(
            endpoints.document(),
            progress=progress,
            namespaces=tenant_namespaces(),
            agent=stored_agent(layout, progress),
            kinds=kinds_of(Settings.read(layout.settings).add_ons),
        )
    except DeployError as error:
        raise StackError(f"the parts are up, but the deployment failed: {error}") from error
    give_access(endpoints, layout)
    progress(f"the stacks are deployed ({time.monotonic() - began:.0f} s)")


def stored_agent(layout: Layout, progress: Progress) -> str | None:
    """The image of this clone's node agent, now in the registry of real kubelets; else None."""
    settings = Settings.read(layout.settings)
    if settings.nodes != "kubelet":
        return None
    port = json.loads(layout.ports.read_text())["registry"]
    images = Images(layout.data / "node" / "images")
    return f"127.0.0.1:{port}/{agent_image.store(images, settings.cache, progress)}"


def tenant_namespaces() -> list[str]:
    manifests = read_manifests(MANIFESTS / "before-karpenter", {})
    return [one["metadata"]["name"] for one in manifests if one["kind"] == "Namespace"]


def down(state: Path, *, keep: bool = False) -> bool:
    """Stop the stack; False if none was running. Leaves no process, whatever it finds.

    With `keep`, the parts save what they remember, and the next `up` resumes it; otherwise only
    the logs stay, until then.
    """
    layout = Layout(state)
    was_running = is_running(layout)
    if was_running:
        for process in guards(layout):
            process.send_signal(signal.SIGTERM if keep else signal.SIGINT)
        await_change(lambda: not is_running(layout), STOP_SECONDS)
    clean = was_running and not is_running(layout)
    kill_tree(guards(layout))
    kill_marked(state)
    if keep and clean:
        layout.endpoints.unlink()
        layout.kept.touch()
    elif not keep and layout.lock.exists():
        forget(layout, but=("logs",))
    return was_running


def forget(layout: Layout, *, but: tuple[str, ...]) -> None:
    """Delete what is in the state folder, except the locks and the named things."""
    for path in layout.state.iterdir():
        if path.suffix == ".lock" or path == layout.lock or path.name in but:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def guards(layout: Layout) -> list[psutil.Process]:
    """Guard and supervisor of the stack with this state folder, the guard first."""
    wanted = ["-m", "local.supervisor", str(layout.state)]
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[1:] == wanted:
                found.append(process)
        except psutil.Error:
            continue
    return sorted(found, key=lambda process: process.pid)


def await_change(happened: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


@dataclass(frozen=True)
class PartStatus:
    name: str
    state: str  # waiting, starting, ready, unhealthy, stopped, failed
    pid: int | None
    port: int | None
    restarts: int


def status(state: Path) -> list[PartStatus]:
    """What every part is doing now: its process is looked for, its health asked for."""
    return [observed(entry) for entry in entries(Layout(state))]


def entries(layout: Layout) -> list[dict[str, Any]]:
    """parts.json, as the supervisor left it a moment ago; empty without a supervisor."""
    if not layout.parts.exists() or not is_running(layout):
        return []
    found: list[dict[str, Any]] = json.loads(layout.parts.read_text())
    return found


def observed(entry: dict[str, Any]) -> PartStatus:
    state = entry["state"]
    if state == "ready" and not psutil.pid_exists(entry["pid"] or -1):
        state = "stopped"
    elif state == "ready" and entry["health"]:
        authority = entry["authority"]
        health = Health(entry["health"], Path(authority) if authority else None)
        state = "ready" if health.is_good() else "unhealthy"
    return PartStatus(entry["name"], state, entry["pid"], entry["port"], entry["restarts"])


def entry_of(layout: Layout, name: str) -> dict[str, Any]:
    known = entries(layout)
    if not known:
        raise StackError(f"no stack runs in {layout.state}: run `sluice local up`")
    for entry in known:
        if entry["name"] == name:
            return entry
    names = ", ".join(entry["name"] for entry in known)
    raise StackError(f"there is no part {name!r}; the parts are {names}")


def stop_part(state: Path, name: str, *, kill: bool = False) -> None:
    """Stop one part until `start_part`; with `kill` by SIGKILL. Raises StackError."""
    layout = Layout(state)
    entry = entry_of(layout, name)
    if not entry["restartable"]:
        raise StackError(f"{name} keeps its memory to itself and cannot be started again alone")
    (layout.held / name).touch()
    end(entry, kill=kill)
    await_state(layout, name, lambda now: now["state"] == "stopped")


def start_part(state: Path, name: str) -> None:
    """Start a part that was stopped, and wait until it is ready. Raises StackError."""
    layout = Layout(state)
    entry_of(layout, name)
    (layout.held / name).unlink(missing_ok=True)
    await_state(layout, name, lambda now: now["state"] == "ready")


def restart_part(state: Path, name: str, *, kill: bool = False) -> None:
    """Stop a part and start it again. Raises StackError."""
    stop_part(state, name, kill=kill)
    start_part(state, name)


def end(entry: dict[str, Any], *, kill: bool) -> None:
    """SIGTERM, and SIGKILL after the part's grace, to the very process that was noted."""
    if entry["pid"] is None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(entry["pid"])
        if process.create_time() != entry["started"]:
            return
        if not kill:
            process.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(entry["grace"])
                return
        process.kill()


def await_state(layout: Layout, name: str, reached: Callable[[dict[str, Any]], bool]) -> None:
    if not await_change(lambda: reached(entry_of(layout, name)), CHANGE_SECONDS):
        raise StackError(f"{name} is {entry_of(layout, name)['state']}; see {layout.log(name)}")
