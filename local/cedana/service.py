"""What Cedana's service does: actions on pods, each in a thread of its own.

A restored pod is a bare one, with the labels that the saved one had then. Archives lie in a folder
of this machine, which all of its process nodes can read.
"""

import http.client
import json
import shutil
import ssl
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from local.node.api import KubernetesApi
from local.node.checkpoint import DRIVER, RESTORE_FROM

Document = dict[str, Any]
SECONDS = 120
# Of a pod's spec, what the cluster gave it and gives again.
GIVEN = ("nodeName", "schedulingGates", "hostname", "priority", "preemptionPolicy")


class ActionError(Exception):
    """What Cedana says of an action that failed."""


@dataclass
class Action:
    id: str
    kind: str
    pod_uid: str
    status: str = "initialized"
    details: str = ""
    pod: Document = field(default_factory=dict)
    checkpoint_id: str = ""

    def row(self) -> Document:
        return {
            "action_id": self.id,
            "type": self.kind,
            "status": self.status,
            "details": self.details,
            "checkpoint_id": self.checkpoint_id or None,
        }


@dataclass
class Service:
    """`token` is that of its own account in the cluster; `held` restores wait to be let go."""

    api: KubernetesApi
    token: str
    folder: Path
    actions: dict[str, Action] = field(default_factory=dict)
    let_go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.let_go.set()
        self.folder.mkdir(parents=True, exist_ok=True)

    def newest(self, pod_uid: str) -> str | None:
        about = [each.id for each in self.actions.values() if each.pod_uid == pod_uid]
        return about[-1] if about else None

    def checkpoint(self, pod_uid: str) -> str:
        return self._begin(Action(str(uuid.uuid4()), "checkpoint", pod_uid))

    def restore(self, action_id: str) -> str | None:
        saved = self.actions.get(action_id)
        if saved is None or saved.status != "ready" or not self._archive(saved).exists():
            return None
        made = Action(str(uuid.uuid4()), "restore", "", pod=saved.pod)
        made.checkpoint_id = saved.checkpoint_id
        return self._begin(made)

    def deprecate(self, checkpoint_id: str) -> bool:
        archive = self.folder / f"{checkpoint_id}.tar"
        found = archive.exists()
        archive.unlink(missing_ok=True)
        return found

    def _begin(self, action: Action) -> str:
        self.actions[action.id] = action
        threading.Thread(target=self._carry_out, args=(action,), daemon=True).start()
        return action.id

    def _carry_out(self, action: Action) -> None:
        action.status = "processing"
        try:
            if action.kind == "checkpoint":
                self._save(action)
            else:
                self.let_go.wait()
                self.api.create(*restored(action, self._archive(action)))
            action.status = "ready"
        except Exception as error:  # noqa: BLE001 - whatever it was, the action has failed
            action.details = str(error)
            action.status = "error"

    def _archive(self, action: Action) -> Path:
        return self.folder / f"{action.checkpoint_id}.tar"

    def _save(self, action: Action) -> None:
        pods = self.api.get("/api/v1/pods")["items"]
        action.pod = next((p for p in pods if p["metadata"]["uid"] == action.pod_uid), {})
        if not action.pod:
            raise ActionError(f"there is no pod {action.pod_uid}")
        written = self._dump(action.pod)
        action.checkpoint_id = str(uuid.uuid4())
        partial = self._archive(action).with_suffix(".part")
        shutil.move(written, partial)
        partial.replace(self._archive(action))

    def _dump(self, pod: Document) -> Path:
        """The archive that the kubelet of its node has written."""
        node = self.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")["status"]
        address = next(a["address"] for a in node["addresses"] if a["type"] == "InternalIP")
        port = node["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        at = pod["metadata"]
        parts = (at["namespace"], at["name"], pod["spec"]["containers"][0]["name"])
        path = "/".join(quote(part) for part in parts)
        unknown = ssl.create_default_context()  # a process node signs its certificate itself
        unknown.check_hostname, unknown.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, context=unknown, timeout=SECONDS)
        headers = {"Authorization": f"Bearer {self.token}"}
        connection.request("POST", f"/checkpoint/{path}?timeout={SECONDS}", headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
        connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise ActionError(text)
        return Path(json.loads(text)["items"][0])


def restored(action: Action, archive: Path) -> tuple[str, Document]:
    """Where the pod is created, and the pod."""
    at = action.pod["metadata"]
    spec = {name: value for name, value in action.pod["spec"].items() if name not in GIVEN}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{at['name'][:40]}-restored-{action.id[:5]}",
            "namespace": at["namespace"],
            "labels": at.get("labels", {}),
            "annotations": {RESTORE_FROM: str(archive), DRIVER: "cedana"},
        },
        "spec": spec,
    }
    return f"/api/v1/namespaces/{at['namespace']}/pods", made
