"""The same client with coroutines, for asyncio programs.

Requests run in threads: botocore and urllib3 have no coroutines, and both may be used from
several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sluice.client.client import Client

if TYPE_CHECKING:
    from sluice.client.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()


def _coroutine(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.client, *args, **kwargs)

    return call


def _asynchronous_iterator(
    method: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    @wraps(method)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return _in_threads(method(self.client, *args, **kwargs))

    return call


class AsyncClient:
    """The methods of Client as coroutines; `list` and `logs` are asynchronous iterators."""

    def __init__(
        self,
        *,
        profile: str | None = None,
        api_url: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.client = Client(profile=profile, api_url=api_url, connection=connection)

    submit = _coroutine(Client.submit)
    submit_all = _coroutine(Client.submit_all)
    get = _coroutine(Client.get)
    list = _asynchronous_iterator(Client.list)
    wait = _coroutine(Client.wait)
    wait_all = _coroutine(Client.wait_all)
    logs = _asynchronous_iterator(Client.logs)
    events = _coroutine(Client.events)
    why = _coroutine(Client.why)
    cancel = _coroutine(Client.cancel)
    hold = _coroutine(Client.hold)
    release = _coroutine(Client.release)
    requeue = _coroutine(Client.requeue)
    reprioritize = _coroutine(Client.reprioritize)


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    """The items of an iterator that waits for answers, without blocking the event loop."""
    while (item := await asyncio.to_thread(next, items, _END)) is not _END:
        yield item
