"""Servers that watch each other over sockets, with cluster managers on ZooKeeper in memory."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import structlog

from waltz_admin import seeding
from waltz_cluster.errors import ClusterError
from waltz_cluster.eviction import Challenges
from waltz_cluster.manager import ClusterManager
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_protocol.aio.channel import ChannelHandler, ChannelSettings
from waltz_protocol.aio.listener import Limits, Listener
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.codec import CLIENT, PEER
from waltz_protocol.errors import ProtocolError
from waltz_protocol.handshake import encode_hello
from waltz_protocol.messages.peer import PEER_VERSION, PeerPing, PeerPong
from waltz_protocol.types import Endpoint
from waltz_server.partition.settlement import OnSettled
from waltz_server.peers.detector import VERSIONS, PeerDetector
from waltz_server.peers.judgement import Challenge
from waltz_server.peers.protocol import AcceptedConnection, WatchedConnection, WatchingConnection
from waltz_testkit.ports import free_port

ROOT = "/waltz"
TIMEOUT = 0.8


class Quiet:
    """A handler of clients that are not there."""

    def channel_ready(self, channel: object) -> None: ...

    def frame_received(self, channel: object, body: memoryview) -> None: ...

    def frames_ended(self, channel: object) -> None: ...

    def writable_changed(self, channel: object, writable: bool) -> None: ...

    def channel_closed(self, channel: object, reason: str) -> None: ...


class Silent(Quiet):
    """A process that is frozen: the kernel takes its bytes."""


class Node:
    """A server without partitions of its own: port, registration, detector."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.store = zookeeper.session(30.0)
        self.port = free_port()
        self.manager = ClusterManager(self.store, ROOT, rng=random.Random(self.port))
        self.given: list[dict[int, int]] = []
        self.frozen = False
        self.detector = PeerDetector(
            TIMEOUT,
            hello_text="test",
            tls=None,
            challenges=Challenges(self.store, ROOT),
            manager=self.manager,
            cluster=UUID(int=5),
        )
        self._listener = Listener()
        self._task: asyncio.Task[None] | None = None

    def _peer(self) -> ChannelHandler:
        return Silent() if self.frozen else self.detector.accepted()

    async def start(self, *, watches: bool = True, admits: Limits = Limits()) -> "Node":  # noqa: B008
        settings = ChannelSettings(
            CLIENT.magic, VERSIONS if watches else CLIENT.versions, "test", close_timeout_seconds=0.1
        )
        await self._listener.start(
            "127.0.0.1", self.port, settings, lambda: AcceptedConnection(Quiet, self._peer), None, admits
        )
        await self.manager.__aenter__()
        registration = await self.manager.register_server(
            Endpoint("127.0.0.1", self.port),
            lambda given: self.given.append({int(pid): int(generation) for pid, generation in given.items()}),
        )
        if watches:
            self.manager.set_members_listener(
                lambda znodes: self.detector.members(znodes, registration.server_id, self.store.session_id)
            )
            self._task = spawn(self.detector.run(), "detector")
        return self

    async def stop_watching(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def kill(self) -> None:
        """SIGKILL: the port is closed, nothing is written to ZooKeeper, the session lives on."""
        self.store.suspend(server_keeps_session=True)
        await self.stop_watching()
        await self._listener.close()

    async def freeze(self) -> None:
        """SIGSTOP: the port takes connections, nothing is answered."""
        self.frozen = True
        self.store.suspend(server_keeps_session=True)
        await self.stop_watching()
        for channel in self._listener.channels:
            channel.handler = Silent()

    async def close(self) -> None:
        await self.stop_watching()
        self.store.resume()
        await self.manager.__aexit__(None, None, None)
        await self._listener.close()
        await self.store.close()

    @property
    def partitions(self) -> dict[int, int]:
        return self.given[-1] if self.given else {}


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def cluster(*watching: bool) -> AsyncIterator[tuple[MemoryZooKeeper, list[Node]]]:
    """Servers; each is closed at the end."""
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    await seeding.create(store, ROOT, "test", 6)
    await store.close()
    async with AsyncExitStack() as stack:
        nodes = []
        for watches in watching:
            nodes.append(await Node(zookeeper).start(watches=watches))
            stack.push_async_callback(nodes[-1].close)
        share = 6 // len(nodes)
        await until(lambda: all(len(node.partitions) == share for node in nodes))
        yield zookeeper, nodes


async def all_heard(nodes: list[Node], peers: int) -> None:
    """Every server has heard from so many."""
    await until(lambda: all(len(node.detector._judgement._watching()) == peers for node in nodes))


def registered(zookeeper: MemoryZooKeeper) -> int:
    return sum(path.startswith(f"{ROOT}/serverDescriptors/") for path in zookeeper.tree())


@pytest.mark.parametrize("victim", [0, 1, 2])
async def test_a_killed_server_loses_its_partitions_to_the_others(victim: int) -> None:
    """The coordinator too; its session would live for half a minute."""
    async with cluster(True, True, True) as (_, nodes):
        await all_heard(nodes, 2)
        await nodes[victim].kill()
        rest = [node for number, node in enumerate(nodes) if number != victim]
        await until(lambda: sum(len(node.partitions) for node in rest) == 6, 20.0)
        assert sum(node.detector.evictions for node in rest) == 1


@pytest.mark.parametrize("victim", [0, 1])
async def test_of_two_servers_the_one_that_is_killed_loses_its_partitions(victim: int) -> None:
    async with cluster(True, True) as (_, nodes):
        await all_heard(nodes, 1)
        await nodes[victim].kill()
        await until(lambda: len(nodes[1 - victim].partitions) == 6, 20.0)


async def test_a_new_process_at_the_address_does_not_speak_for_the_one_before() -> None:
    """It listens, and is not registered yet."""
    async with cluster(True, True) as (_, nodes):
        await all_heard(nodes, 1)
        await nodes[1].kill()
        settings = ChannelSettings(CLIENT.magic, VERSIONS, "test", close_timeout_seconds=0.1)
        async with Listener() as listener:
            ears = Ears()
            ears.own_name = ""
            await listener.start(
                "127.0.0.1",
                nodes[1].port,
                settings,
                lambda: AcceptedConnection(Quiet, lambda: WatchedConnection(ears)),
                None,
            )
            await until(lambda: len(nodes[0].partitions) == 6, 20.0)


async def test_a_frozen_server_loses_its_partitions_after_the_timeout() -> None:
    async with cluster(True, True, True) as (_, nodes):
        await all_heard(nodes, 2)
        began = asyncio.get_running_loop().time()
        await nodes[0].freeze()
        await until(lambda: len(nodes[1].partitions) + len(nodes[2].partitions) == 6, 25.0)
        assert asyncio.get_running_loop().time() - began >= 0.9 * TIMEOUT


async def test_safety_g1_a_server_that_answers_in_zookeeper_stays() -> None:
    """Its port is dead for its peers, but the process lives."""
    async with cluster(True, True) as (zookeeper, nodes):
        await all_heard(nodes, 1)
        await nodes[1]._listener.close()
        await until(lambda: nodes[0].detector.suspected == 1)
        await asyncio.sleep(2 * TIMEOUT)
        assert nodes[0].detector.evictions == 0
        assert registered(zookeeper) == 2
        assert {} not in nodes[1].given


async def test_safety_g1_who_has_answered_is_not_evicted_by_the_challenge_of_another_judge() -> None:
    async with cluster(True, True) as (zookeeper, nodes):
        await all_heard(nodes, 1)
        name = nodes[1].detector.own_name
        path = f"{ROOT}/serverChallenges/{name}"
        await nodes[1].kill()
        other = Challenges(zookeeper.session(30.0), ROOT)
        await until(lambda: path in zookeeper.tree())
        await other.delete(name)  # as the server itself
        await other.create(name)  # as another judge
        await until(lambda: path not in zookeeper.tree())  # the first one takes notice
        await asyncio.sleep(TIMEOUT / 4)
        assert nodes[0].detector.evictions == 0
        assert registered(zookeeper) == 2


async def test_safety_g1_a_server_that_does_not_watch_is_left_alone() -> None:
    """As one of release 0.13.2: it gets a Hello, and no more."""
    async with cluster(True, False) as (zookeeper, nodes):
        await until(lambda: nodes[0].detector._judgement.watched() == [])
        await until(lambda: not nodes[1]._listener.channels)
        await nodes[1].kill()
        await asyncio.sleep(2 * TIMEOUT)
        assert nodes[0].detector.suspected == 0
        assert registered(zookeeper) == 2


async def test_a_peer_that_refuses_the_connection_is_not_counted_and_is_named() -> None:
    """As one whose `server.ssl.allowedPeers` lacks the name of the servers."""
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    await seeding.create(store, ROOT, "test", 6)
    refuses, watches = Node(zookeeper), Node(zookeeper)
    with structlog.testing.capture_logs() as logs:
        await refuses.start(admits=Limits(allowed_peers=("somebody",)))
        await watches.start()
        await until(lambda: refuses.detector.watched == 1)
        await until(lambda: any(log["event"] == "a peer cannot be watched" for log in logs))
        assert watches.detector.watched == 0
        for node in (refuses, watches):
            await node.close()
    await store.close()


@pytest.mark.looptime
async def test_what_cannot_be_done_is_tried_slower_and_slower_and_logged_when_it_changes() -> None:
    """As while ZooKeeper does not permit a write: it was tried, and logged, eight times a second."""
    reasons: list[str | None] = [*["not permitted"] * 6, "gone", None, "not permitted"]

    class Store:
        async def create(self, name: str) -> None:
            reason = reasons.pop(0)
            if reason is not None:
                raise ClusterError(reason)

    challenges: Any = Store()
    manager: Any = None
    detector = PeerDetector(
        TIMEOUT, hello_text="test", tls=None, challenges=challenges, manager=manager, cluster=UUID(int=5)
    )
    loop = asyncio.get_running_loop()
    pauses = []
    with structlog.testing.capture_logs() as logs:
        while reasons:
            began = loop.time()
            await detector._act(Challenge("s_1"))
            pauses.append(round(loop.time() - began, 9))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8, 0.0, 0.1]
    assert [(log["event"], log.get("reason")) for log in logs] == [
        ("nothing could be done about a peer", "not permitted"),
        ("nothing could be done about a peer", "gone"),
        ("something can be done about peers again", None),
        ("nothing could be done about a peer", "not permitted"),
    ]


async def test_a_challenged_server_that_ends_in_another_way_leaves_no_challenge() -> None:
    """It crashed, and its session ended before it was evicted."""

    class NotYet:
        async def evict(self, name: str) -> bool:
            raise ClusterError("not yet")

    async with cluster(True, True, True) as (zookeeper, nodes):
        await all_heard(nodes, 2)
        judge, victim = nodes[0], nodes[1]
        judge.detector._manager = NotYet()
        challenges = judge.detector._challenges
        await victim.kill()
        await until(lambda: bool(challenges._owners))
        victim.store.expire()
        await until(lambda: registered(zookeeper) == 2)
        await until(lambda: not challenges._owners)
        assert not [path for path in zookeeper.tree() if path.startswith(f"{ROOT}/serverChallenges/")]


async def test_what_a_server_that_does_not_watch_is_sent() -> None:
    """Exactly a Hello, whose highest common version is one of clients."""
    received = bytearray()
    done = asyncio.Event()

    async def old_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_hello((0, 1, 2, 3, 4), "Waltz Server"))
        while data := await reader.read(1000):
            received.extend(data)
        writer.close()
        done.set()

    async with cluster(True) as (zookeeper, nodes):
        server = await asyncio.start_server(old_server, "127.0.0.1", 0)
        store = zookeeper.session()
        manager = ClusterManager(store, ROOT, rng=random.Random(0))
        async with manager:
            await manager.register_server(
                Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), lambda given: None
            )
            async with asyncio.timeout(10):
                await done.wait()
            await until(lambda: nodes[0].detector._judgement.watched() == [])
            assert bytes(received) == encode_hello(VERSIONS, "test")
        server.close()
        await server.wait_closed()
        await store.close()


async def test_a_server_that_was_evicted_wrongly_is_back_on_its_own() -> None:
    async with cluster(True, True) as (zookeeper, nodes):
        await all_heard(nodes, 1)
        name = nodes[1].detector.own_name
        nodes[1].detector._answering[1].cancel()  # type: ignore[index]
        await nodes[0].detector._challenges.create(name)
        assert await nodes[0].manager.evict(name)
        await until(lambda: {} in nodes[1].given and len(nodes[1].partitions) == 3)
        await until(lambda: nodes[1].detector.own_name not in ("", name))
        assert registered(zookeeper) == 2


class Ears:
    def __init__(self) -> None:
        self.own_name = "s_1"
        self.cluster = UUID(int=5)
        self.heard: list[tuple[str, dict[str, bool]]] = []

    def heard_suspicions(self, observer: str, suspects: object) -> None:
        self.heard.append((observer, dict(suspects)))  # type: ignore[call-overload]

    def hand_over(self, partition_id: int, generation: int, answer: OnSettled) -> None:
        answer(None)


class FakeChannel:
    version = PEER_VERSION
    handler: object = None

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, *parts: bytes) -> None:
        self.sent += parts


def body(message: object) -> memoryview:
    return memoryview(PEER.encode_body(message, PEER_VERSION))  # type: ignore[arg-type]


def test_a_ping_is_answered_at_once_and_its_suspicions_are_heard() -> None:
    ears, channel = Ears(), FakeChannel()
    WatchedConnection(ears).frame_received(channel, body(PeerPing(7, "s_2", {"s_3": True})))  # type: ignore[arg-type]
    assert channel.sent == [PEER.encode(PeerPong(7, "s_1"), PEER_VERSION)]
    assert ears.heard == [("s_2", {"s_3": True})]


@pytest.mark.parametrize("broken", [b"", b"\x09", bytes(70_000)])
def test_what_is_no_message_ends_the_connection(broken: bytes) -> None:
    with pytest.raises(ProtocolError):
        WatchedConnection(Ears()).frame_received(FakeChannel(), memoryview(broken))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        WatchingConnection(lambda name: None).frame_received(FakeChannel(), memoryview(broken))  # type: ignore[arg-type]


def test_each_side_takes_only_what_the_other_sends() -> None:
    with pytest.raises(ProtocolError):
        WatchedConnection(Ears()).frame_received(FakeChannel(), body(PeerPong(1, "s_1")))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        WatchingConnection(lambda name: None).frame_received(FakeChannel(), body(PeerPing(1, "s", {})))  # type: ignore[arg-type]
