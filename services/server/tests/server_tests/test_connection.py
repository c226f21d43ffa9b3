"""A client's bytes over a real loopback connection: conversations, versions, bad bytes, partitions side by
side."""

import asyncio
import ssl

import pytest

from waltz_protocol.aio.tls import TlsSettings, client_context, server_context
from waltz_protocol.connection_number import COUNTER_BITS
from waltz_protocol.messages.client import (
    FeedData,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    MountState,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz_protocol.types import ReqId, data_checksum
from waltz_server import connection as connection_module
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.partition.queue_room import AppendBounds
from waltz_testkit.client_peers import RawPeer
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import wire_record

R = "00000001000000020000000300000004"
REQ = ReqId(1, 2, 3, 4)


def frame(body: str, version: int = 4) -> str:
    """A whole frame in hex around a body in hex."""
    return f"4C {version:04X} {len(bytes.fromhex(body)):08X} {body}"


APPEND_HEAD = f"02 {R} 0000000000000063"


def contexts() -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    return server_context(TlsSettings()), client_context(TlsSettings(allow_unverified=True))


async def mount(
    peer: RawPeer, partition: int = 3, *, generation: int = 2, hwm: int = -1, seq: int = 0
) -> ReqId:
    req_id = ReqId(1, generation, partition, 1)
    peer.send(MountRequest(req_id, hwm, seq))
    messages = await peer.read_until(lambda m: isinstance(m, MountResponse))
    assert messages[-1] == MountResponse(req_id, MountState.READY)
    return req_id


@pytest.mark.parametrize("encrypted", [False, True])
async def test_conversation_in_hex(encrypted: bool) -> None:
    """The hex lines of the protocol's catalogue, sent and answered."""
    server_tls, client_tls = contexts() if encrypted else (None, None)
    async with LoopbackServer({3: 2}, tls=server_tls) as server:
        store = server.backend.stores[3]
        store.log += [wire_record(n) for n in range(100)]
        await asyncio.sleep(0)
        peer = await server.peer(tls=client_tls)
        peer.write(bytes.fromhex(f"4C 0004 00000021 00 {R} 0000000000000063 0000000000000000"))
        assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000015 01 {R} 00000000")
        peer.write(bytes.fromhex(f"4C 0004 00000019 03 {R} 0000000000000063"))
        append = f"4C 0004 0000003A 02 {R} 0000000000000063 00000001 002D9814 00000000 00000000 00000010"
        peer.write(bytes.fromhex(append + " 00000005 68656C6C6F 3610A686"))
        assert await peer.read_frame_bytes() == bytes.fromhex(
            f"4C 0004 0000001D 04 {R} 0000000000000064 00000010"
        )
        peer.write(bytes.fromhex(f"4C 0004 00000019 06 {R} 0000000000000064"))
        assert await peer.read_frame_bytes() == bytes.fromhex(
            f"4C 0004 00000027 07 {R} 0000000000000064 01 00000005 68656C6C6F 3610A686"
        )
        peer.write(bytes.fromhex(append + " 00000005 68656C6C6F 3610A686"))
        assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000019 0A {R} 0000000000000064")
        peer.write(bytes.fromhex(f"4C 0004 00000011 08 {R}"))
        assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000019 09 {R} 0000000000000064")
        peer.write(bytes.fromhex(f"4C 0004 00000011 0B {R}"))
        assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000019 0C {R} 0000000000000064")


@pytest.mark.parametrize("version", range(5))
async def test_every_version_converses(version: int) -> None:
    async with LoopbackServer({3: 2}, settings=PartitionSettings(min_fetch_size=2)) as server:
        peer = await server.peer(version=version)
        mounted = await mount(peer)
        peer.send(FeedRequest(mounted, -1))
        peer.append(ReqId(1, 2, 3, 10), data=b"one", header=7)
        peer.append(ReqId(1, 2, 3, 11), data=b"two")
        assert await peer.read() == FeedData(ReqId(1, 2, 3, 10), 0, 7)
        assert await peer.read() == FeedData(ReqId(1, 2, 3, 11), 1, 0)
        assert await peer.read() == FeedSuspended(mounted)
        peer.send(TransactionDataRequest(REQ, 1))
        response = await peer.read()
        assert isinstance(response, TransactionDataResponse)
        assert response.data == b"two"
        peer.send(MountRequest(ReqId(1, 2, 3, 12), 5, 0))
        ahead = MountState.CLIENT_AHEAD if version >= 3 else MountState.NOT_READY
        assert await peer.read() == MountResponse(ReqId(1, 2, 3, 12), ahead)


@pytest.mark.parametrize(
    ("what", "sent"),
    [
        ("unknown type", f"4C 0004 00000011 63 {R}"),
        ("type of a server", f"4C 0004 00000011 05 {R}"),
        ("no request id", "4C 0004 00000003 0B 0000"),
        ("trailing bytes", f"4C 0004 00000012 08 {R} 00"),
        ("missing bytes", f"4C 0004 00000018 03 {R} 00000000000000"),
        ("wrong version", f"4C 0003 00000011 08 {R}"),
        ("wrong magic", f"53 0004 00000011 08 {R}"),
        ("second hello", "48 0000 0000000A 00000001 0004 00000000"),
        ("negative length", f"4C 0004 FFFFFFFF 08 {R}"),
        ("frame too large", f"4C 0004 00200000 08 {R}"),
        (
            "bad checksum",
            frame(f"{APPEND_HEAD} 00000000 00000000 00000000 00000010 00000001 68 3610A686"),
        ),
        (
            "null data",
            frame(f"{APPEND_HEAD} 00000000 00000000 00000000 00000010 FFFFFFFF 00000000"),
        ),
        (
            "locks that are not there",
            frame(f"{APPEND_HEAD} 7FFFFFFF 00000000 00000000 00000010 00000000 00000000"),
        ),
    ],
)
async def test_bad_bytes_close_the_connection(what: str, sent: str) -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer()
        await mount(peer)
        peer.write(bytes.fromhex(sent))
        assert await peer.closed_by_server(), what
        assert server.backend.stores[3].log == []


async def test_keep_alive_frames_and_null_lock_arrays_are_harmless() -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer()
        await mount(peer)
        peer.write(bytes.fromhex("4C 0004 00000000"))
        null_locks = f"{APPEND_HEAD} FFFFFFFF 00000000 00000000 00000010 00000001 68 916B06E7"
        peer.write(bytes.fromhex(frame(null_locks)))
        peer.send(FlushRequest(REQ))
        assert await peer.read() == FlushResponse(REQ, -1)


async def test_partition_that_is_not_here() -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer()
        elsewhere, nowhere = ReqId(1, 2, 5, 4), ReqId(1, 2, 99, 4)
        peer.append(elsewhere)
        peer.send(FeedRequest(elsewhere, 4))
        peer.send(FlushRequest(elsewhere))
        peer.send(HighWaterMarkRequest(elsewhere))
        peer.send(TransactionDataRequest(elsewhere, 4))
        assert await peer.read() == TransactionDataResponse(elsewhere, 4, None, 0, "partition not ready")
        peer.send(MountRequest(nowhere, -1, 0))
        assert await peer.read() == MountResponse(nowhere, MountState.NOT_READY)
        peer.send(MountRequest(elsewhere, -1, 0))
        assert await peer.read() == MountResponse(elsewhere, MountState.NOT_READY)


async def test_a_mount_or_a_read_that_comes_before_the_partition_waits_for_it() -> None:
    """During a take-over; a refusal would cost the client half a second."""
    async with LoopbackServer({}) as server:
        peer = await server.peer()
        peer.send(MountRequest(REQ, -1, 0))
        peer.send(TransactionDataRequest(REQ, 0))
        async with asyncio.timeout(5):
            while not server.registry._held_reads:
                await asyncio.sleep(0.001)
        server.backend.nodes.logs[3] = [wire_record(0)]
        server.registry.adopt({3: 2})
        answers = [
            await peer.read(),
            await peer.read(),
            await peer.read(),
        ]  # one of them feeds what the mount lacks
        assert MountResponse(REQ, MountState.READY) in answers
        assert TransactionDataResponse(REQ, 0, b"old", data_checksum(b"old"), None) in answers


async def test_partition_that_comes_back_makes_clients_mount_again() -> None:
    """The client never saw the partition go: without a word it would wait forever."""
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer()
        mounted = await mount(peer)
        peer.append(ReqId(1, 2, 3, 8))
        peer.send(FlushRequest(REQ))
        assert await peer.read() == FlushResponse(REQ, 0)
        server.registry.adopt({})
        server.registry.adopt({3: 3})
        assert await peer.read() == MountResponse(mounted, MountState.NOT_READY)
        await mount(peer, generation=3, hwm=0)


async def test_safety_d7_recovering_partition_stalls_no_other_on_the_connection() -> None:
    async with LoopbackServer({3: 2, 4: 2}) as server:
        peer = await server.peer()
        await mount(peer, 3)
        await mount(peer, 4)
        server.backend.stores[3].lose_session("no quorum")
        for n in range(200):
            peer.append(ReqId(1, 2, 3, 100 + n))
        peer.send(FlushRequest(ReqId(1, 2, 3, 1000)))
        peer.append(ReqId(1, 2, 4, 5))
        peer.send(FlushRequest(ReqId(1, 2, 4, 6)))
        assert await peer.read() == FlushResponse(ReqId(1, 2, 4, 6), 0)
        server.backend.stores[3].open_session()
        assert await peer.read() == FlushResponse(ReqId(1, 2, 3, 1000), 199)


@pytest.mark.parametrize("mounted", [True, False])
async def test_safety_d7_appends_to_a_recovering_partition_do_not_pause_the_connection(mounted: bool) -> None:
    """What is for the open partition comes with later socket reads, after the other one is recovering and
    full."""
    bounds = PartitionSettings(append_bounds=AppendBounds(max_count=100))
    async with LoopbackServer({3: 2, 4: 2}, settings=bounds) as server:
        peer = await server.peer()
        if mounted:
            await mount(peer, 3)
        await mount(peer, 4)
        server.backend.stores[3].lose_session("no quorum")
        recovering = server.registry.partitions[3]
        if not mounted:
            peer.send(MountRequest(ReqId(1, 2, 3, 1), -1, 0))
        for n in range(150):
            peer.append(ReqId(1, 2, 3, 100 + n))
        async with asyncio.timeout(5):
            while recovering._appends.room.count < 100:
                await asyncio.sleep(0.001)
        for n in range(5):
            peer.append(ReqId(1, 2, 4, 5))
            peer.send(FlushRequest(ReqId(1, 2, 4, n)))
            assert await peer.read() == FlushResponse(ReqId(1, 2, 4, n), n)
        assert server.backend.stores[3].log == []
        server.backend.stores[3].open_session()
        peer.send(FlushRequest(ReqId(1, 2, 3, 1000)))
        messages = await peer.read_until(lambda m: isinstance(m, FlushResponse))
        assert messages[-1] == FlushResponse(ReqId(1, 2, 3, 1000), 99)


async def test_client_server_13_14_slow_read_and_check_stall_nothing() -> None:
    async with LoopbackServer({3: 2}) as server:
        server.backend.stores[3].log += [wire_record(0)]
        await asyncio.sleep(0)
        hold = asyncio.Event()

        async def slow_check() -> dict[str, bool]:
            await hold.wait()
            return {}

        server.check = slow_check
        server.backend.stores[3].gate.clear()
        peer = await server.peer()
        peer.write(bytes.fromhex("4C 0004 00000011 0D 00000001000000000000000000000000"))
        peer.send(TransactionDataRequest(REQ, 0))
        peer.send(HighWaterMarkRequest(REQ))
        assert await peer.read() == HighWaterMarkResponse(REQ, 0)
        server.backend.stores[3].gate.set()
        assert isinstance(await peer.read(), TransactionDataResponse)
        hold.set()


async def test_client_server_13_10_second_connection_with_equal_numbers_gets_its_turn() -> None:
    async with LoopbackServer({3: 2}) as server:
        first, second = await server.peer(), await server.peer()
        await mount(first)
        req_id = ReqId(1, 2, 3, 50)
        second.send(MountRequest(req_id, -1, 0))
        assert await second.read() == MountResponse(req_id, MountState.NOT_READY)
        await first.close()
        async with asyncio.timeout(5):
            while True:  # as a client does; it takes the server a moment to see the end of the first one
                second.send(MountRequest(req_id, -1, 0))
                answer = await second.read()
                if answer == MountResponse(req_id, MountState.READY):
                    break
        second.append(ReqId(1, 2, 3, 51))
        second.send(FlushRequest(REQ))
        assert await second.read() == FlushResponse(REQ, 0)


async def test_safety_d10_an_append_under_the_request_id_of_another_client_is_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one would be told that it is committed. The line in the log names who sent it, however many
    it sends."""
    monkeypatch.setattr(connection_module, "LARGE_BYTES", 1000)
    async with LoopbackServer({3: 2}) as server:
        victim, thief = await server.peer(), await server.peer()
        mounted = await mount(victim)
        victim.send(FeedRequest(mounted, -1))
        own = ReqId(7, 2, 3, 1)
        thief.send(MountRequest(own, -1, 0))
        assert await thief.read() == MountResponse(own, MountState.READY)
        for seq_num in range(2, 200):
            thief.append(ReqId(1, 2, 3, seq_num), data=b"forged")
        thief.append(ReqId(1, 2, 3, 200), data=bytes(2000))  # a large one is handled in steps
        thief.append(ReqId(7, 2, 3, 2), data=b"own")
        thief.send(FlushRequest(own))
        assert await thief.read() == FlushResponse(own, 0)
        assert await victim.read() == FeedData(ReqId(7, 2, 3, 2), 0, 0)
        assert len(server.backend.stores[3].log) == 1
    lines = [line for line in caplog.messages if "dropped an append under a request id of client 1" in line]
    assert lines
    assert all("127.0.0.1:" in line and "client 7" in line for line in lines)
    assert len(lines) <= 21


async def test_safety_d10_naming_the_id_of_another_client_earns_nothing() -> None:
    """From the first message on: with the largest numbers there are, the id of a client of ours, and its next
    request ids."""
    async with LoopbackServer({3: 2}) as server:
        victim, thief = await server.peer(), await server.peer()
        mounted = await mount(victim, seq=5 << COUNTER_BITS)
        victim.send(FeedRequest(mounted, -1))
        for generation in (2, 2**31 - 1):
            thief.send(MountRequest(ReqId(1, generation, 3, 1), -1, 2**63 - 1))
        await thief.read()
        for seq_num in range(2, 200):
            thief.append(ReqId(1, 2, 3, seq_num), data=b"forged")
        thief.send(FlushRequest(ReqId(1, 2, 3, 9)))
        assert await thief.read() == FlushResponse(ReqId(1, 2, 3, 9), -1)
        victim.append(ReqId(1, 2, 3, 2), data=b"own")
        assert await victim.read() == FeedData(ReqId(1, 2, 3, 2), 0, 0)
        again = await server.peer()
        await mount(again, seq=(5 << COUNTER_BITS) + 1, hwm=0)


async def test_the_connection_number_is_that_of_the_first_mount() -> None:
    """Also when the partition of that mount comes only later: one that changed would leave the first one's
    place behind."""
    async with LoopbackServer({4: 2}) as server:
        peer = await server.peer()
        peer.send(MountRequest(REQ, -1, 5 << COUNTER_BITS))  # of partition 3, which is not here yet
        await mount(peer, 4, seq=9 << COUNTER_BITS)
        server.registry.adopt({3: 2, 4: 2})
        assert await peer.read() == MountResponse(REQ, MountState.READY)
        (connection,) = server.registry._connections
        assert connection.connection_seq_num == 5 << COUNTER_BITS
        await peer.close()
        async with asyncio.timeout(5):
            while server.registry.connection_count:
                await asyncio.sleep(0.001)
        assert [len(partition._mounts._places) for partition in server.registry.partitions.values()] == [0, 0]


async def test_safety_d10_a_client_of_0_13_2_whose_id_is_taken_hears_of_it_and_gets_it_back() -> None:
    async with LoopbackServer({3: 2}) as server:
        victim, thief = await server.peer(), await server.peer()
        mounted = await mount(victim)
        thief.send(MountRequest(ReqId(1, 2, 3, 1), -1, 2**27 - 1))
        assert await thief.read() == MountResponse(ReqId(1, 2, 3, 1), MountState.READY)
        assert await victim.read() == MountResponse(mounted, MountState.NOT_READY)
        asked = 0
        async with asyncio.timeout(10):
            while True:
                asked += 1
                await asyncio.sleep(0.02)  # a client of 0.13.2 sleeps 0.5 s after NOT_READY
                req_id = ReqId(1, 2, 3, 1 + asked)
                victim.send(MountRequest(req_id, -1, 0))
                if await victim.read() == MountResponse(req_id, MountState.READY):
                    break
        assert await thief.read() == MountResponse(ReqId(1, 2, 3, 1), MountState.NOT_READY)
        thief.append(ReqId(1, 2, 3, 50), data=b"forged")
        thief.send(FlushRequest(REQ))
        assert await thief.read() == FlushResponse(REQ, -1)


async def test_client_that_never_reads_is_closed_with_what_waits_for_it() -> None:
    async with LoopbackServer({3: 2}, max_pending_bytes=200_000) as server:
        peer = await server.peer()
        request = HighWaterMarkRequest(REQ)
        async with asyncio.timeout(60):
            while server.registry.connection_count:
                for _ in range(2000):
                    peer.send(request)
                await asyncio.sleep(0)


async def test_closed_connections_leave_nothing_behind() -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer()
        mounted = await mount(peer)
        peer.send(FeedRequest(mounted, -1))
        peer.send(HighWaterMarkRequest(REQ))
        await peer.read()
        partition = server.registry.partitions[3]
        assert len(partition._feeds) == 1
        await peer.close()
        async with asyncio.timeout(5):
            while server.registry.connection_count:
                await asyncio.sleep(0.001)
        assert len(partition._feeds) == 0
        assert len(partition._mounts) == 0


async def test_lock_failure_over_the_wire_in_version_0() -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer(version=0)
        await mount(peer)
        head = f"4C 0000 00000032 02 {R} FFFFFFFFFFFFFFFF 00000001 002D9814 00000010 00000005 68656C6C6F 3610A686"
        peer.write(bytes.fromhex(head), bytes.fromhex(head))
        assert await peer.read() == LockFailure(REQ, 0)
