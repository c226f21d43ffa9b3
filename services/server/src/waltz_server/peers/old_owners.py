"""The questions of a new owner to the old ones: one connection per old owner for all of its partitions, for
as long as it is of use.

Whatever goes wrong, an old owner of release 0.13.2 included, the answer is None, after `HAND_OVER_SECONDS` at
the latest. Owner: the server. One task per connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import UUID

import structlog

from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.codec import PEER
from waltz_protocol.errors import ConnectError, ProtocolError
from waltz_protocol.locks import SLOT_SCHEME
from waltz_protocol.messages.peer import PEER_VERSION, HandOver, HandOverRequest, NoHandOver
from waltz_protocol.types import Endpoint
from waltz_server.partition.hand_over import HAND_OVER_SECONDS, LockHandOver, parse
from waltz_server.peers.protocol import decode

log = structlog.get_logger(__name__)

LINK_SECONDS = 2.0
"""How long a connection, or the knowledge that there is none, is kept."""

Answer = asyncio.Future[LockHandOver | None]


class OldOwners:
    """See the module. `settings` are those of a connection to a peer, `cluster` is the key of ours."""

    def __init__(self, settings: ChannelSettings, tls: ClientTls | None, cluster: UUID) -> None:
        self._settings = settings
        self._tls = tls
        self._cluster = cluster
        self._links: dict[str, tuple[_Link, asyncio.Task[None]]] = {}
        self._closed = False

    def prepare(self, address: str) -> None:
        """Connect to the old owner at this address, which will be asked soon."""
        if not self._closed and address not in self._links:
            link = _Link(self._cluster)
            self._links[address] = link, spawn(self._keep(address, link), f"old-owner-{address}")

    async def ask(self, address: str, partition_id: int, generation: int) -> LockHandOver | None:
        """What the old owner hands over of a partition that is ours now."""
        self.prepare(address)
        if self._closed:
            return None
        link, _ = self._links[address]
        answer: Answer = asyncio.get_running_loop().create_future()
        link.ask(partition_id, generation, answer)
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                return await answer
        except TimeoutError:
            log.info("no lock table came in time", partition=partition_id, peer=address)
            return None
        finally:
            link.forget(partition_id, answer)

    async def _keep(self, address: str, link: _Link) -> None:
        try:
            try:
                channel = await connect(
                    Endpoint.parse(address), self._settings, link, self._tls, HAND_OVER_SECONDS
                )
            except (ConnectError, ValueError) as error:
                log.debug("no connection to an old owner", peer=address, reason=str(error))
            else:
                if channel.version == PEER_VERSION:
                    link.connected(channel)
                else:
                    channel.abort("it hands nothing over")
            if link.channel is None:
                link.over()
            await asyncio.sleep(LINK_SECONDS)
        finally:
            del self._links[address]
            link.over()

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Link:
    """The connection to one old owner, and what waits for its answers."""

    def __init__(self, cluster: UUID) -> None:
        self._cluster = cluster
        self.channel: Channel | None = None
        self._asked: dict[int, tuple[int, Answer]] = {}
        self._over = False

    def ask(self, partition_id: int, generation: int, answer: Answer) -> None:
        """Now, or when it is connected."""
        if self._over:
            answer.set_result(None)
            return
        self._asked[partition_id] = generation, answer
        if self.channel is not None:
            self._request(self.channel, partition_id, generation)

    def forget(self, partition_id: int, answer: Answer) -> None:
        """Nobody waits for it any longer."""
        asked = self._asked.get(partition_id)
        if asked is not None and asked[1] is answer:
            del self._asked[partition_id]

    def connected(self, channel: Channel) -> None:
        """With a server of this release."""
        self.channel = channel
        for partition_id, (generation, _) in self._asked.items():
            self._request(channel, partition_id, generation)

    def _request(self, channel: Channel, partition_id: int, generation: int) -> None:
        request = HandOverRequest(partition_id, generation, self._cluster, SLOT_SCHEME)
        channel.send(PEER.encode(request, PEER_VERSION))

    def over(self) -> None:
        """No answer comes any longer."""
        self._over = True
        asked, self._asked = self._asked, {}
        for _, answer in asked.values():
            if not answer.done():
                answer.set_result(None)
        if self.channel is not None:
            self.channel.abort("nothing is handed over any longer")

    # -- the handler of the channel

    def channel_ready(self, channel: Channel) -> None:
        """`OldOwners` looks at the version."""

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """An answer."""
        message = decode(body)
        if not isinstance(message, (HandOver, NoHandOver)):
            raise ProtocolError("a message that answers no question for a lock table")
        _, answer = self._asked.get(message.partition_id, (0, None))
        if answer is not None and not answer.done():
            answer.set_result(parse(message, self._cluster) if isinstance(message, HandOver) else None)
        return None

    def frames_ended(self, channel: Channel) -> None:
        """Nothing waits for it."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Questions are a few bytes."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """What has no answer gets none."""
        self.over()
