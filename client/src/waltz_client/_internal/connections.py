"""The connections of one client: its close ends when the last of them is gone."""

from __future__ import annotations

import weakref

from waltz_client._internal.link import Connector
from waltz_protocol.aio.channel import Channel, ChannelHandler, ChannelSettings
from waltz_protocol.aio.closing import wait_gone
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.types import Endpoint


class Connections:
    """A connector that knows what it made. Owner: the client."""

    def __init__(self, connect: Connector) -> None:
        self._connect = connect
        self._made: weakref.WeakSet[Channel] = weakref.WeakSet()

    async def connect(
        self,
        endpoint: Endpoint,
        settings: ChannelSettings,
        handler: ChannelHandler,
        tls: ClientTls | None,
        connect_timeout_seconds: float,
    ) -> Channel:
        """As the connector that was given."""
        channel = await self._connect(endpoint, settings, handler, tls, connect_timeout_seconds)
        self._made.add(channel)
        return channel

    async def wait_gone(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all of them are gone, which their owners have closed: TLS says good-bye first, and an
        application whose loop ends with its client (`asyncio.run`) would leave sockets open."""
        if kind is not GeneratorExit:  # a coroutine that is destroyed cannot wait
            await wait_gone(list(self._made))
