"""The node's HTTP server: connections are kept for further requests and end with the server."""

from __future__ import annotations

import asyncio
import http.client

import pytest

from local.node.web import Listener, Request, Response, serve


async def tell_path(request: Request) -> Response:
    return Response(200, request.path.encode())


def ask(connection: http.client.HTTPConnection, method: str, path: str) -> tuple[bytes, bool]:
    """The body, and whether the connection stays open for more."""
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.read(), not answer.will_close


@pytest.mark.enable_socket
def test_a_connection_carries_one_question_after_the_other() -> None:
    async def story() -> None:
        listener = await serve(tell_path)
        connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=5)
        for path in ("/first", "/second"):
            answered = await asyncio.to_thread(ask, connection, "GET", path)
            assert answered == (path.encode(), True)
        assert len(listener.connections) == 1
        assert not (await asyncio.to_thread(ask, connection, "POST", "/with-a-body"))[1]
        await closed(listener)

    asyncio.run(story())


@pytest.mark.enable_socket
def test_a_dead_machine_answers_on_no_old_connection() -> None:
    async def story() -> None:
        listener = await serve(tell_path)
        connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=5)
        await asyncio.to_thread(ask, connection, "GET", "/")
        connection.auto_open = 0
        listener.close()
        with pytest.raises((http.client.HTTPException, OSError)):
            await asyncio.to_thread(ask, connection, "GET", "/")
        await closed(listener)

    asyncio.run(story())


async def closed(listener: Listener) -> None:
    listener.close()
    await asyncio.gather(*(writer.wait_closed() for writer in [*listener.connections]))
