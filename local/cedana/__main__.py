"""Serves the stand-in for Cedana on loopback.

    python -m local.cedana --port 6667 --kubeconfig FILE --token FILE --folder FOLDER

`PUT /_restores` with `{"held": true}` keeps restores under way until they are let go again.
"""

import argparse
import json
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from local.cedana.service import Service
from local.json_answers import JsonHandler
from local.node.api import KubernetesApi

Answer = tuple[int, Any]
NOT_FOUND: Answer = (404, {"error": "not found"})


def answer(service: Service, method: str, path: str, body: dict[str, Any]) -> Answer:
    """The status and body that a call gets."""
    match method, path.strip("/").split("/"):
        case "POST", ["v2", "checkpoint", "pod"]:
            return 200, service.checkpoint(body["pod_id"])
        case "POST", ["v2", "restore", "pod"]:
            begun = service.restore(body["action_id"])
            return (200, begun) if begun else NOT_FOUND
        case "GET", ["v2", "checkpoint", "status", action]:
            found = service.actions.get(action)
            return (200, found.row()) if found else NOT_FOUND
        case "GET", ["v2", "actions", "from_pod", uid]:
            newest = service.newest(uid)
            return (200, newest) if newest else NOT_FOUND
        case "GET", ["v2", "actions"]:
            return 200, [each.row() for each in service.actions.values()]
        case "PATCH", ["v2", "checkpoints", "deprecate", checkpoint]:
            return (200, {}) if service.deprecate(checkpoint) else NOT_FOUND
        case "PUT", ["_restores"]:
            (service.let_go.clear if body["held"] else service.let_go.set)()
            return 200, {}
        case "GET", ["healthz"]:
            return 200, {}
    return NOT_FOUND


def handler(service: Service, token: str) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def handle_call(self) -> None:
            body = self.document()
            known = self.headers.get("Authorization") == f"Bearer {token}"
            open_to_all = self.path == "/healthz"
            self.answer(
                *(
                    answer(service, self.command, self.path, body)
                    if known or open_to_all
                    else (401, {"error": "unauthorized"})
                )
            )

        do_GET = do_POST = do_PATCH = do_PUT = handle_call

    return Handler


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--kubeconfig", type=Path, required=True, help="of its account there")
    options.add_argument("--token", type=Path, required=True, help="which its callers show")
    options.add_argument("--folder", type=Path, required=True, help="for archives")
    given = options.parse_args()
    account = json.loads(given.kubeconfig.read_text())["users"][0]["user"]["token"]
    service = Service(KubernetesApi(given.kubeconfig), account, given.folder)
    serve: Callable[..., ThreadingHTTPServer] = ThreadingHTTPServer
    serve(("127.0.0.1", given.port), handler(service, given.token.read_text())).serve_forever()


if __name__ == "__main__":
    main()
