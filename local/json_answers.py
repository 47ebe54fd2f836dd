"""The base of the small servers here that answer with JSON."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Reads and answers JSON over kept connections."""

    protocol_version = "HTTP/1.1"

    def document(self) -> Any:
        """The request's body; an empty object if it has none. Raises ValueError."""
        length = int(self.headers.get("Content-Length") or 0)
        return json.loads(self.rfile.read(length) or b"{}")

    def answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Successes are not worth a line, and tokens are never logged."""
