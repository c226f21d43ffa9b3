"""Both ends of a connection between two servers that watch each other: who handles an accepted connection,
pings and pongs, and answers to new owners. What is heard goes to the detector.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from waltz_protocol.aio.channel import Channel, ChannelHandler
from waltz_protocol.codec import PEER
from waltz_protocol.errors import ProtocolError
from waltz_protocol.locks import SLOT_SCHEME
from waltz_protocol.messages.peer import (
    PEER_VERSION,
    HandOver,
    HandOverRequest,
    NoHandOver,
    PeerPing,
    PeerPong,
)
from waltz_server.partition.hand_over import LockHandOver, message_of
from waltz_server.partition.settlement import OnSettled

MAX_PEER_BODY_BYTES = 64 * 1024
MAX_UNSENT_BYTES = 32 * 1024 * 1024
"""Of answers that wait for a peer that does not read; the channel may hold as much again for a moment. A
table for which there is no room is left out, and the peer does without; another answer ends the
connection."""
TABLE_UNITS = 100
COMMITS_PER_UNIT = 4
"""The work of one table (see `turns`), and of its commits."""


class AcceptedConnection:
    """Chooses by the version of the Hello who handles a connection that was accepted, and is out of the
    way."""

    def __init__(self, client: Callable[[], ChannelHandler], peer: Callable[[], ChannelHandler]) -> None:
        self._client = client
        self._peer = peer

    def channel_ready(self, channel: Channel) -> None:
        """Hello exchanged."""
        channel.handler = self._peer() if channel.version == PEER_VERSION else self._client()
        channel.handler.channel_ready(channel)

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """Never: frames come after the Hello."""
        raise ProtocolError("a message before the Hello")

    def frames_ended(self, channel: Channel) -> None:
        """Nothing waits for it."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Nothing waits for it."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """It never said Hello."""


class PeerEars(Protocol):
    """Who is interested in what peers say."""

    @property
    def own_name(self) -> str:
        """Descriptor of this server; empty while it is not registered."""

    @property
    def cluster(self) -> UUID:
        """Its key."""

    def heard_suspicions(self, observer: str, suspects: Mapping[str, bool]) -> None:
        """Another server reports whom it suspects."""

    def hand_over(self, partition_id: int, generation: int, answer: OnSettled) -> None:
        """The new owner of a partition asks for its lock table; `answer` is called once."""


class WatchedConnection:
    """The side that was connected to: answers each ping at once, and a question for a lock table when the
    partition is settled."""

    def __init__(self, ears: PeerEars) -> None:
        self._ears = ears
        self._asks = False
        self._unsent: deque[bytes] = deque()
        """Answers that wait until a peer that asks for tables has read others."""
        self._unsent_bytes = 0
        self._writable = True

    def channel_ready(self, channel: Channel) -> None:
        """The other side speaks first."""

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """A ping."""
        message = decode(body)
        if isinstance(message, HandOverRequest):
            self._asked(channel, message)
            return None
        if not isinstance(message, PeerPing):
            raise ProtocolError("a pong that answers nothing")
        self._send(channel, PeerPong(message.number, self._ears.own_name))
        self._ears.heard_suspicions(message.name or "", message.suspects)
        return None

    def _asked(self, channel: Channel, request: HandOverRequest) -> None:
        self._asks = True
        partition_id = request.partition_id

        def answer(handed_over: LockHandOver | None) -> None:
            if handed_over is None:
                self._send(channel, NoHandOver(partition_id))
            elif not channel.closed:
                channel.charge(TABLE_UNITS + len(handed_over.commits) // COMMITS_PER_UNIT)
                self._send(channel, message_of(handed_over, self._ears.cluster))

        if request.cluster != self._ears.cluster or request.slot_scheme != SLOT_SCHEME:
            answer(None)
        else:
            self._ears.hand_over(partition_id, request.generation, answer)

    def _send(self, channel: Channel, message: PeerPong | HandOver | NoHandOver) -> None:
        frame = PEER.encode(message, PEER_VERSION)
        if self._writable:
            channel.send(frame)
        elif self._unsent_bytes + len(frame) <= MAX_UNSENT_BYTES:
            self._unsent.append(frame)
            self._unsent_bytes += len(frame)
        elif not isinstance(message, HandOver):
            self._forget_unsent()
            channel.close("it does not read the answers to its questions")

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0

    def frames_ended(self, channel: Channel) -> None:
        """Nothing waits for it."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Who only pings, and does not read the few bytes of a pong, is closed. Else answers wait."""
        self._writable = writable
        if not writable:
            if not self._asks:
                channel.close("it does not read the answers to its pings")
            return
        unsent = tuple(self._unsent)
        self._forget_unsent()
        channel.send(*unsent)

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """It connects again if it wants to."""
        self._forget_unsent()


class WatchingConnection:
    """The side that connected. `answered` gets the name in each pong; `wake` is set when the connection has
    ended, and by the detector when it has something to report."""

    def __init__(self, answered: Callable[[str], None]) -> None:
        self.closed = False
        self.wake = asyncio.Event()
        self._answered = answered
        self._number = 0

    def ping(self, channel: Channel, name: str, suspects: Mapping[str, bool]) -> None:
        """Send one; dropped when the connection is closed."""
        self._number += 1
        channel.send(PEER.encode(PeerPing(self._number, name, suspects), PEER_VERSION))

    def channel_ready(self, channel: Channel) -> None:
        """The detector, which connected, looks at the version."""

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """A pong."""
        message = decode(body)
        if not isinstance(message, PeerPong):
            raise ProtocolError("a ping from the side that was connected to")
        self._answered(message.name or "")
        return None

    def frames_ended(self, channel: Channel) -> None:
        """Nothing waits for it."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Pings are a few bytes; a peer that reads none is silent, and that is seen."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The link's task sees it."""
        self.closed = True
        self.wake.set()


def decode(body: memoryview) -> object:
    """A message of `PEER_VERSION`; ProtocolError."""
    if len(body) > MAX_PEER_BODY_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes from a server")
    return PEER.decode(body, PEER_VERSION)
