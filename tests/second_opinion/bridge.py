"""What detangle's simulated network lacks for our connections, put on top of it without changing it.

Its transports hand over bytes by `data_received` and know no `asyncio.BufferedProtocol`, which our channels
are; its `create_connection` and `create_server` take `ssl=` and silently leave it out, and its loop
refuses the calls that our listeners with TLS make (`sock_accept`, `connect_accepted_socket`). So TLS is
carried here by asyncio's own `SSLProtocol` (an `ssl.MemoryBIO` inside), set between channel and transport
on both sides.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

import detangle
from detangle.net import SimNetwork

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set is decided by its number, not by its address in memory.

    `asyncio.TaskGroup` and `asyncio.wait` keep tasks in sets and go through them; the loop does not see that.
    """

    numbers: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = next(self.numbers)
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


def number_tasks(loop: detangle.SimLoop) -> None:
    """Tasks of this loop are numbered from 0 on."""
    NumberedTask.numbers = itertools.count()
    loop.set_task_factory(lambda loop, coroutine, **options: NumberedTask(coroutine, loop=loop, **options))


class Filling(asyncio.Protocol):
    """Gives what was received to a buffered protocol, as asyncio's own transports do."""

    def __init__(self, inner: asyncio.BufferedProtocol) -> None:
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not hasattr(transport, "_force_close") and isinstance(transport, asyncio.Transport):
            # asyncio's SSLProtocol ends a broken connection with it; the simulated transport has `abort`
            # only.
            transport._force_close = lambda _error: transport.abort()  # type: ignore[attr-defined]
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._transport is not None and not self._transport.is_closing():
            room = memoryview(self._inner.get_buffer(len(view)))
            size = min(len(room), len(view))
            room[:size] = view[:size]
            self._inner.buffer_updated(size)
            view = view[size:]

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def _filled(protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return Filling(protocol) if isinstance(protocol, asyncio.BufferedProtocol) else protocol


class Bridge:
    """Replaces the two calls of the network of one run. `server_tls` None: everything is plaintext."""

    def __init__(self, network: SimNetwork, server_tls: ssl.SSLContext | None) -> None:
        self._create_connection = network.create_connection
        self._create_server = network.create_server
        self._server_tls = server_tls
        self.handshakes = 0
        network.create_connection = self.create_connection  # type: ignore[method-assign,assignment]
        network.create_server = self.create_server  # type: ignore[method-assign,assignment]

    async def create_connection(
        self, factory: ProtocolFactory, host: Any = None, port: Any = None, **options: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """With `ssl=` as asyncio does it: gives the transport above TLS when the handshake is done."""
        context = options.pop("ssl", None)
        if context is None:
            made: list[asyncio.BaseProtocol] = []
            transport, _ = await self._create_connection(lambda: _kept(made, factory), host, port, **options)
            return transport, made[0]
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        channel = factory()
        secure = SSLProtocol(
            loop, channel, context, done, server_side=False, server_hostname=options.get("server_hostname")
        )
        transport, _ = await self._create_connection(lambda: Filling(secure), host, port)
        try:
            await done
        except BaseException:
            transport.close()
            raise
        self.handshakes += 1
        return secure._app_transport, channel

    async def create_server(
        self, factory: ProtocolFactory, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Every accepted connection gets the context of this run, whatever the listener asked for."""
        context = self._server_tls

        def accepted() -> asyncio.BaseProtocol:
            if context is None:
                return _filled(factory())
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()
            done.add_done_callback(_noticed)
            return Filling(SSLProtocol(loop, factory(), context, done, server_side=True))

        return await self._create_server(accepted, host, port, **options)


def _kept(made: list[asyncio.BaseProtocol], factory: ProtocolFactory) -> asyncio.BaseProtocol:
    made.append(factory())
    return _filled(made[0])


def _noticed(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()


def network_of_this_run() -> SimNetwork:
    """The network of the loop that runs now."""
    network: SimNetwork = detangle.network()
    return network
