"""Questions for lock tables over sockets: answers, silence, peers of release 0.13.2, peers that lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from waltz_protocol.aio.channel import ChannelSettings
from waltz_protocol.aio.listener import Listener
from waltz_protocol.codec import CLIENT, PEER
from waltz_protocol.messages.peer import PEER_VERSION, NoHandOver
from waltz_server.partition.hand_over import HAND_OVER_SECONDS, LockHandOver, message_of
from waltz_server.partition.settlement import OnSettled
from waltz_server.peers import old_owners as module
from waltz_server.peers.detector import VERSIONS, link_settings
from waltz_server.peers.old_owners import OldOwners
from waltz_server.peers.protocol import AcceptedConnection, WatchedConnection
from waltz_testkit.ports import free_port

CLUSTER = UUID(int=5)


class Ears:
    """A server that hands over what it is asked for."""

    own_name = "s_1"
    cluster = CLUSTER

    def __init__(self, give: Callable[[int, OnSettled], None]) -> None:
        self.asked: list[tuple[int, int]] = []
        self._give = give

    def heard_suspicions(self, observer: str, suspects: object) -> None:
        """Never here."""

    def hand_over(self, partition_id: int, generation: int, answer: OnSettled) -> None:
        self.asked.append((partition_id, generation))
        self._give(partition_id, answer)


def table(partition_id: int, commits: int = 2) -> LockHandOver:
    return LockHandOver(
        partition_id, 3, 7, commits, 30_000, -1, tuple((n, (n, n + 1, n + 2)) for n in range(commits))
    )


@asynccontextmanager
async def asked(
    give: Callable[[int, OnSettled], None], *, watches: bool = True
) -> AsyncIterator[tuple[OldOwners, Ears, str]]:
    port, ears, listener = free_port(), Ears(give), Listener()
    settings = ChannelSettings(
        CLIENT.magic, VERSIONS if watches else CLIENT.versions, "test", close_timeout_seconds=0.1
    )

    def connection() -> WatchedConnection:
        return WatchedConnection(ears)

    await listener.start(
        "127.0.0.1", port, settings, lambda: AcceptedConnection(connection, connection), None
    )
    owners = OldOwners(link_settings("test", HAND_OVER_SECONDS), None, CLUSTER)
    try:
        yield owners, ears, f"127.0.0.1:{port}"
    finally:
        await owners.close()
        await listener.close()


async def test_many_tables_come_over_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(lambda pid, answer: answer(table(pid, 2000))) as (owners, ears, address):
        monkeypatch.setattr(module, "HAND_OVER_SECONDS", 30.0)
        monkeypatch.setattr(module, "LINK_SECONDS", 60.0)
        found = await asyncio.gather(*(owners.ask(address, pid, 4) for pid in range(60)))
        assert len(owners._links) == 1
        assert sorted(ears.asked) == [(pid, 4) for pid in range(60)]
        assert found == [table(pid, 2000) for pid in range(60)]


async def test_a_server_that_does_not_give_the_partition_up_says_so() -> None:
    async with asked(lambda pid, answer: answer(None)) as (owners, _, address):
        assert await owners.ask(address, 3, 4) is None


async def test_nothing_is_asked_of_a_server_of_another_cluster_or_slot_scheme() -> None:
    async with asked(lambda pid, answer: answer(table(pid))) as (owners, ears, address):
        assert await owners.ask(address, 3, 4) == table(3)
        ears.cluster = UUID(int=6)
        assert await owners.ask(address, 3, 5) is None
        ears.cluster = CLUSTER
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SLOT_SCHEME", 2)
            assert await owners.ask(address, 3, 6) is None
        assert ears.asked == [(3, 4)]


async def test_silence_costs_the_bound_and_no_more() -> None:
    async with asked(lambda pid, answer: None) as (owners, _, address):
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await owners.ask(address, 3, 4) is None
        assert loop.time() - began >= HAND_OVER_SECONDS * 0.9


@pytest.mark.parametrize("watches", [True, False])
async def test_a_peer_of_0_13_2_is_left_alone(watches: bool) -> None:
    async with asked(lambda pid, answer: answer(table(pid)), watches=watches) as (owners, ears, address):
        assert await owners.ask(address, 3, 4) == (table(3) if watches else None)
        assert ears.asked == ([(3, 4)] if watches else [])


async def test_where_nobody_listens_all_partitions_know_at_once() -> None:
    owners = OldOwners(link_settings("test", HAND_OVER_SECONDS), None, CLUSTER)
    address = f"127.0.0.1:{free_port()}"
    assert await asyncio.gather(*(owners.ask(address, pid, 4) for pid in range(3))) == [None] * 3
    assert await owners.ask("not an address", 3, 4) is None
    await owners.close()
    assert await owners.ask(address, 3, 4) is None


class Liar:
    """The asked side of a connection that answers with these bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def channel_ready(self, channel: object) -> None: ...

    def frame_received(self, channel: object, body: memoryview) -> None:
        channel.send(self._answer)  # type: ignore[attr-defined]

    def frames_ended(self, channel: object) -> None: ...

    def writable_changed(self, channel: object, writable: bool) -> None: ...

    def channel_closed(self, channel: object, reason: str) -> None: ...


@pytest.mark.parametrize(
    "answer",
    [
        PEER.encode(replace(message_of(table(3), CLUSTER), commits=b"\0\0"), PEER_VERSION),
        PEER.encode(message_of(table(4), CLUSTER), PEER_VERSION),
        PEER.encode(NoHandOver(9), PEER_VERSION),
        PEER.encode(message_of(table(3), UUID(int=6)), PEER_VERSION),
    ],
    ids=["truncated", "another partition", "another partition's no", "another cluster"],
)
async def test_safety_d12_a_lying_peer_gives_no_table(answer: bytes) -> None:
    port, listener = free_port(), Listener()
    settings = ChannelSettings(CLIENT.magic, VERSIONS, "test", close_timeout_seconds=0.1)
    await listener.start("127.0.0.1", port, settings, lambda: Liar(answer), None)
    owners = OldOwners(link_settings("test", HAND_OVER_SECONDS), None, CLUSTER)
    try:
        assert await owners.ask(f"127.0.0.1:{port}", 3, 4) is None
    finally:
        await owners.close()
        await listener.close()
