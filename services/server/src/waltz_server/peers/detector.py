"""The detector of a server: connections to its peers, and what their judgement says to do (ADR 35).

Owner of everything here: the task of `run`. One small task per watched peer keeps a connection, pings at an
interval of an eighth of the timeout, and connects again at once when it ends: only what a new connection
says counts. Challenges and evictions are done one after another by a task of their own, so that ZooKeeper may
take its time. What decides is in `judgement`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

import structlog

from waltz_cluster.errors import ClusterError, VersionConflictError
from waltz_cluster.eviction import Challenges
from waltz_cluster.membership import Member
from waltz_protocol.aio.channel import ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.backoff import Backoff
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ConnectError
from waltz_protocol.messages.peer import PEER_VERSION
from waltz_server.partition.hand_over import HAND_OVER_SECONDS
from waltz_server.partition.settlement import OnSettled
from waltz_server.peers.judgement import (
    GONE_WAIT,
    Action,
    Challenge,
    Evict,
    PeerId,
    PeerJudgement,
    Withdraw,
)
from waltz_server.peers.old_owners import OldOwners
from waltz_server.peers.protocol import MAX_PEER_BODY_BYTES, WatchedConnection, WatchingConnection
from waltz_server.store.waiting import Signal, wait_for

log = structlog.get_logger(__name__)

VERSIONS = (*CLIENT.versions, PEER_VERSION)
"""Of the Hello of a server that watches: on its port, and where it connects to a peer."""
PINGS = 8
"""In a timeout; it is looked at what follows twice as often."""
_ZOOKEEPER_TIMEOUTS = 2
"""So many timeouts may a step in ZooKeeper take; then the others wait no longer."""


def link_settings(hello_text: str, timeout_seconds: float) -> ChannelSettings:
    """Of a connection that is made to a peer."""
    return ChannelSettings(
        magic=CLIENT.magic,
        versions=VERSIONS,
        hello_text=hello_text,
        max_frame_bytes=MAX_PEER_BODY_BYTES,
        handshake_timeout_seconds=timeout_seconds,
    )


HandOverTo = Callable[[int, int, OnSettled], None]


def _nothing(partition_id: int, generation: int, answer: OnSettled) -> None:
    answer(None)


class Evicting(Protocol):
    """The part of the cluster manager that is needed."""

    async def evict(self, name: str) -> bool: ...


class PeerDetector:
    """See the module. `members` is called by the cluster manager, `accepted` by the listener."""

    def __init__(
        self,
        timeout_seconds: float,
        *,
        hello_text: str,
        tls: ClientTls | None,
        challenges: Challenges,
        manager: Evicting,
        cluster: UUID,
        hand_over: HandOverTo = _nothing,
    ) -> None:
        self.evictions = 0
        self._timeout = timeout_seconds
        self._interval = timeout_seconds / PINGS
        self._tls = tls
        self._challenges = challenges
        self._manager = manager
        self.cluster = cluster
        self._hand_over = hand_over
        self._loop = asyncio.get_running_loop()
        self._judgement = PeerJudgement(timeout_seconds)
        self._me: PeerId | None = None
        self._changed = Signal()
        self._suspects: dict[str, bool] = {}
        self._links: dict[str, asyncio.Task[None]] = {}
        self._open: dict[str, WatchingConnection] = {}
        self._unreached: set[str] = set()  # of those: named in the log
        self._answering: tuple[str, asyncio.Task[None]] | None = None
        self._acting: asyncio.Task[None] | None = None
        self._act_problems: dict[str, str] = {}  # by peer: named in the log
        self._act_pause = Backoff(self._interval, timeout_seconds)
        self.old_owners = OldOwners(link_settings(hello_text, HAND_OVER_SECONDS), tls, cluster)
        self._settings = link_settings(hello_text, timeout_seconds)

    # -- what others call

    def members(self, znodes: tuple[Member, ...], server_id: int, session_id: int) -> None:
        """The descriptors that are there now; ours is the one with this id and of this session."""
        now = self._loop.time()
        found = [PeerId(each.name, each.descriptor.server_id, each.descriptor.endpoint) for each in znodes]
        owners = {each.name: each.owner for each in znodes}
        mine = [each for each in found if each.server_id == server_id and owners[each.name] == session_id]
        self._me = mine[-1] if mine else None
        self._judgement.members(self._me, (each for each in found if each.server_id != server_id), now)
        self._changed.notify()

    def accepted(self) -> WatchedConnection:
        """The handler of a connection that a peer made."""
        return WatchedConnection(self)

    @property
    def own_name(self) -> str:
        """See `PeerEars`."""
        return self._me.name if self._me is not None else ""

    def heard_suspicions(self, observer: str, suspects: Mapping[str, bool]) -> None:
        """See `PeerEars`."""
        self._judgement.reported(observer, suspects, self._loop.time())
        if suspects:
            self._changed.notify()

    def hand_over(self, partition_id: int, generation: int, answer: OnSettled) -> None:
        """See `PeerEars`."""
        self._hand_over(partition_id, generation, answer)

    @property
    def watched(self) -> int:
        """Peers that answer on a connection now."""
        return len(self._open)

    @property
    def suspected(self) -> int:
        """Peers that are not heard from now."""
        return len(self._suspects)

    # -- the task

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                ticket = self._changed.ticket()
                now = self._loop.time()
                actions = self._judgement.tick(now)
                self._note_suspects(self._judgement.suspects(now))
                self._keep_links(tasks)
                self._keep_answering(tasks)
                if actions and (self._acting is None or self._acting.done()):
                    self._acting = tasks.create_task(self._act(actions[0]), name="peer-action")
                await wait_for(ticket, self._interval / 2)

    def _note_suspects(self, suspects: dict[str, bool]) -> None:
        for name in suspects.keys() - self._suspects.keys():
            log.warning("peer is suspected", peer=name, gone=suspects[name])
        for name in self._suspects.keys() - suspects.keys():
            log.info("peer is suspected no longer", peer=name)
        if suspects != self._suspects:
            self._suspects = suspects
            for connection in self._open.values():
                connection.wake.set()  # to report it at once

    def _keep_links(self, tasks: asyncio.TaskGroup) -> None:
        wanted = {peer.name: peer for peer in self._judgement.watched()}
        for name in [name for name in self._links if name not in wanted]:
            self._links.pop(name).cancel()
            self._unreached.discard(name)
            self._act_problems.pop(name, None)
        for name, peer in wanted.items():
            if name not in self._links:
                self._links[name] = tasks.create_task(self._follow(peer), name=f"peer-{name}")

    def _keep_answering(self, tasks: asyncio.TaskGroup) -> None:
        name = self.own_name
        if self._answering is not None and self._answering[0] != name:
            self._answering[1].cancel()
            self._answering = None
        if name and self._answering is None:
            task = tasks.create_task(self._challenges.answer(name), name="peer-answers")
            self._answering = (name, task)

    # -- one peer

    async def _follow(self, peer: PeerId) -> None:
        """Keep a connection to one peer."""
        while True:
            began = self._loop.time()
            await self._one_connection(peer)
            # one that lasted is made again at once: what it says now is what counts
            pause = max(self._interval - (self._loop.time() - began), 0.0)
            if pause:
                await asyncio.sleep(pause)

    async def _one_connection(self, peer: PeerId) -> None:
        def answered(name: str) -> None:
            if name == peer.name:
                self._judgement.heard(peer.name, self._loop.time())
                if peer.name in self._suspects:
                    self._changed.notify()
            else:
                self._refused(peer)

        connection = WatchingConnection(answered)
        try:
            channel = await connect(peer.endpoint, self._settings, connection, self._tls, self._timeout)
        except ConnectError as error:
            if peer.name not in self._unreached:
                self._unreached.add(peer.name)
                log.warning("a peer cannot be watched", peer=peer.name, reason=str(error))
            if error.refused:
                self._refused(peer)
            return
        try:
            if channel.version != PEER_VERSION:
                self._judgement.does_not_watch(peer.name)
                log.info("peer does not watch others", peer=peer.name, endpoint=str(peer.endpoint))
                self._changed.notify()
                return
            self._open[peer.name] = connection
            self._unreached.discard(peer.name)
            while not connection.closed:
                connection.wake.clear()
                connection.ping(channel, self.own_name, self._suspects)
                await wait_for(connection.wake, self._interval)
        finally:
            self._open.pop(peer.name, None)
            channel.abort("it is watched no longer")

    def _refused(self, peer: PeerId) -> None:
        self._judgement.refused(peer.name)
        if peer.name not in self._suspects:
            self._changed.notify()

    # -- what is done about it

    async def _act(self, action: Action) -> None:
        """One step. After one that failed nothing is tried for a while, which grows to the timeout."""
        try:
            async with asyncio.timeout(_ZOOKEEPER_TIMEOUTS * self._timeout):
                await self._do(action)
            self._changed.notify()
        except VersionConflictError as error:
            log.debug("the members changed while a peer was evicted", peer=action.name, reason=str(error))
        except (ClusterError, TimeoutError) as error:
            reason = str(error) or "ZooKeeper did not answer in time"
            if reason != self._act_problems.get(action.name):
                self._act_problems[action.name] = reason
                log.warning("nothing could be done about a peer", peer=action.name, reason=reason)
            self._judgement.unknown(action.name)
            await asyncio.sleep(self._act_pause.next_seconds())
        else:
            self._act_pause.reset()
            if self._act_problems:
                self._act_problems.clear()
                log.info("something can be done about peers again")

    async def _do(self, action: Action) -> None:
        name = action.name
        match action:
            case Challenge():
                await self._challenges.create(name)
                self._judgement.challenged(name, self._loop.time())
                self._loop.call_later(GONE_WAIT * self._timeout, self._changed.notify)
            case Withdraw():
                await self._challenges.delete(name)
                self._judgement.withdrawn(name)
            case Evict(reason=reason):
                if await self._challenges.unanswered(name) and await self._manager.evict(name):
                    self._challenges.forget(name)
                    self.evictions += 1
                    log.warning("evicted a server", peer=name, reason=reason)
                    self._judgement.evicted(name, self._loop.time())
                else:
                    log.info("a suspected peer has answered in ZooKeeper", peer=name)
                    self._judgement.answered(name, self._loop.time())
                    await self._challenges.delete(name)  # one of ours for a server that left stays otherwise
