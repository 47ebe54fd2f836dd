"""HTTP/1.1 in the event loop: enough for a kubelet's endpoints and the metadata service."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HEAD_LIMIT = 1 << 16
HEAD_SECONDS = 15


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # decoded, without the query
    query: dict[str, str]
    headers: dict[str, str]  # lower-case names
    certified: bool  # the client showed a certificate that the TLS layer verified


@dataclass(frozen=True)
class Response:
    """`body` is sent at once, or chunk by chunk when it is an iterator."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    kind: str = "text/plain"
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, document: Any, status: int = 200) -> "Response":
        return cls(status, json.dumps(document).encode(), "application/json")


Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Listener:
    """A server on 127.0.0.1 with its open connections, which end with it."""

    server: asyncio.Server
    connections: set[asyncio.StreamWriter]

    @property
    def port(self) -> int:
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        self.server.close()
        for writer in self.connections:
            writer.close()


async def serve(handler: Handler, *, port: int = 0, tls: ssl.SSLContext | None = None) -> Listener:
    """Listens on 127.0.0.1 only."""
    connections: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                while await _answer(handler, reader, writer):
                    pass
        finally:
            connections.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls, limit=HEAD_LIMIT)
    return Listener(server, connections)


async def _answer(
    handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Answers one request; True if the connection may carry another."""
    request = None
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
        request = _parse(head.decode("latin-1"), certified=_certified(writer))
    except (ValueError, asyncio.LimitOverrunError):
        response = Response(400, b"malformed request\n")
    else:
        response = await handler(request)
    kept = request is not None and _may_stay(request)
    chunked = not isinstance(response.body, bytes)
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.kind}",
        f"Connection: {'keep-alive' if kept else 'close'}",
        "Transfer-Encoding: chunked" if chunked else f"Content-Length: {_size(response.body)}",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    if isinstance(response.body, bytes):
        writer.write(response.body)
    else:
        async for chunk in response.body:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return kept


def _may_stay(request: Request) -> bool:
    """A new TLS connection for each log costs more than the log; bodies are not read here."""
    unread = {"content-length", "transfer-encoding"} & request.headers.keys()
    asked_to_close = request.headers.get("connection", "").lower() == "close"
    return request.method == "GET" and not unread and not asked_to_close


def _size(body: Any) -> int:
    return len(body)


def _certified(writer: asyncio.StreamWriter) -> bool:
    secured = writer.get_extra_info("ssl_object")
    return secured is not None and bool(secured.getpeercert())


def _parse(head: str, *, certified: bool) -> Request:
    first, *rest = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    address = urlsplit(target)
    headers = dict(line.split(":", 1) for line in rest)
    return Request(
        method=method,
        path=unquote(address.path),
        query={key: values[-1] for key, values in parse_qs(address.query).items()},
        headers={name.strip().lower(): value.strip() for name, value in headers.items()},
        certified=certified,
    )
