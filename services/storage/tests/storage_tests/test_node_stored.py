"""Version 1 of the storage protocol on a node over real sockets: stored records out and in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from waltz_protocol.aio.stored_connection import StoredConnection
from waltz_protocol.codec import NEWEST_STORAGE_VERSION, STORAGE, STORAGE_OF_0_13_2
from waltz_protocol.errors import ChannelClosedError, ProtocolError, RequestFailedError
from waltz_protocol.frame import Magic, frame
from waltz_protocol.frames.blocks import cut_stored, stored_of_record
from waltz_protocol.frames.storage import stored_append_parts
from waltz_protocol.messages import storage
from waltz_protocol.types import Endpoint, SessionInfo
from waltz_storage.service.disk_pool import QueueLimits
from waltz_storage.service.jobs import ReadLimits
from waltz_storage.service.requests import MAX_APPEND_RECORDS, STEP_RECORDS, is_much, parse_append
from waltz_storage.service.server import StorageNode

from .node_support import GatedExecutor, connected, raw_connection, records, running_node
from .support import KEY, empty_disk, payload, segment_path, wire_record

PARTITION = 3
"""That of the test records."""


def stored(first: int, count: int, size: int = 40) -> bytes:
    return b"".join(stored_of_record(wire_record(t, payload(t, size))) for t in range(first, first + count))


@asynccontextmanager
async def server_of(
    node: StorageNode, newest: int = NEWEST_STORAGE_VERSION
) -> AsyncIterator[StoredConnection]:
    connection = await StoredConnection.open(
        Endpoint("127.0.0.1", node.port),
        cluster_key=KEY,
        num_partitions=4,
        tls=None,
        request_timeout_seconds=10.0,
        newest_version=newest,
    )
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


async def append(server: StoredConnection, first: int, data: bytes, count: int, committed: int = -1) -> None:
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    server.submit_stored_append(5, PARTITION, committed, first, count, data, done.set_result)
    error = await done
    if error is not None:
        raise error


async def ranged(
    server: StoredConnection, first: int, last: int, committed: int, max_bytes: int = 1 << 20
) -> tuple[int, int, bytes]:
    return await server.stored_range(5, PARTITION, first, last, committed=committed, max_bytes=max_bytes)


@pytest.mark.parametrize("threshold", [200, 1_000_000_000])
async def test_stored_records_go_in_and_out_as_they_are(tmp_path: Path, threshold: int) -> None:
    async with running_node(tmp_path, assign=(PARTITION,), threshold=threshold) as node:
        async with server_of(node) as server:
            assert server.stored_records
            assert await server.last_session_and_end(5, PARTITION) == (SessionInfo(-1, -1, -1), -1)
            await append(server, 0, stored(0, 10), 10)
            await append(server, 10, b"", 0)
            await append(server, 10, stored(10, 5), 5, committed=9)
            assert await ranged(server, 4, 11, 12) == (4, 8, stored(4, 8))
            assert await ranged(server, 12, 14, 12) == (12, 1, stored(12, 1))
            assert await ranged(server, 15, 20, 12) == (15, 0, b"")
            # Everything else of version 0 is there, with the same records.
            assert await server.record_list(5, PARTITION, 0, 15) == records(0, 15)
            assert await server.truncate(5, PARTITION, 12) == 12
        async with server_of(node, STORAGE_OF_0_13_2) as server:
            assert not server.stored_records
            assert await server.record_list(5, PARTITION, 0, 99) == records(0, 13)
    async with running_node(tmp_path) as node, connected(node) as tool:
        assert await tool.record_list(6, PARTITION, 0, 99) == records(0, 13)


async def test_a_node_that_offers_version_0_only_is_spoken_to_in_it(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(PARTITION,), newest_version=0) as node,
        server_of(node) as server,
    ):
        assert server.version == 0
        await server.last_session_info(5, PARTITION)
        await server.append(5, PARTITION, records(0, 3))
        assert await server.record_list(5, PARTITION, 0, 9) == records(0, 3)


async def test_types_of_version_1_end_a_connection_of_version_0(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(PARTITION,)) as node:
        for message in (
            storage.StoredRangeRequest(5, 1, PARTITION, 0, 1, 0, 100, 0),
            storage.StoredAppendRequest(5, 1, PARTITION, -1, 0, 1, stored(0, 1)),
        ):
            async with raw_connection(node) as server:
                await server.ask(storage.OpenRequest(-1, -1, -1, KEY, 4))
                await server.send(frame(Magic.STORAGE, 0, STORAGE.encode_body(message, 1)))
                assert await server.is_closed()


async def test_safety_d1_nothing_above_the_committed_mark_is_given_to_a_reader(tmp_path: Path) -> None:
    """The node knows the mark by what requests carry and by the low-water mark; recovery may have all."""
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 10), 10)
        assert await ranged(server, 0, 9, -1) == (0, 0, b"")
        assert (
            await server.stored_range(5, PARTITION, 0, 9, committed=-1, max_bytes=1 << 20, unresolved=True)
        )[1] == 10
        await append(server, 10, stored(10, 1), 1, committed=3)
        assert (await ranged(server, 0, 9, -1))[1] == 4
        assert node.manager.get(PARTITION).committed == 3
        assert (await server.stored_range(5, PARTITION, 0, 9, committed=5, max_bytes=1 << 20))[1] == 6
        await server.truncate(5, PARTITION, 4)
        assert node.manager.get(PARTITION).committed == 4
        await append(server, 5, stored(5, 1), 1)
        assert node.manager.get(PARTITION).committed == 4, (
            "what follows a cut is not committed by an old mark"
        )


async def test_a_refused_append_carries_no_mark(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 3), 3)
        with pytest.raises(RequestFailedError, match="transaction 7 where 3 was expected"):
            await append(server, 7, stored(7, 1), 1, committed=2)
        await server.last_session_info(6, PARTITION)
        with pytest.raises(RequestFailedError):
            await server.stored_range(5, PARTITION, 0, 2, committed=2, max_bytes=1000)
        assert node.manager.get(PARTITION).committed == -1


async def test_safety_b1_a_range_for_an_older_session_is_refused_and_raises_the_fence_like_any(
    tmp_path: Path,
) -> None:
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 3), 3)
        assert (await server.stored_range(6, PARTITION, 0, 2, committed=2, max_bytes=1000))[1] == 3
        with pytest.raises(RequestFailedError, match="session 5"):
            await server.stored_range(5, PARTITION, 0, 2, committed=2, max_bytes=1000)
        with pytest.raises(RequestFailedError, match="session 5"):
            await append(server, 3, stored(3, 1), 1)


async def test_ranges_are_bounded_in_bytes(tmp_path: Path) -> None:
    one = len(stored(0, 1))
    async with (
        running_node(tmp_path, assign=(PARTITION,), read_limits=ReadLimits(5 * one, 5 * one)) as node,
        server_of(node) as server,
    ):
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 40), 40)
        for size, count in ((1, 1), (3 * one, 3), (3 * one + 1, 3), (1 << 20, 5)):
            found = await server.stored_range(5, PARTITION, 7, 39, committed=39, max_bytes=size)
            assert found == (7, count, stored(7, count))
        for size in (0, -1):
            assert (await server.stored_range(5, PARTITION, 7, 39, committed=39, max_bytes=size))[1] == 0


@pytest.mark.parametrize("place", [0, 8, 24, 33, 40, 78, 79])
async def test_a_record_that_does_not_match_its_checksum_is_never_stored(tmp_path: Path, place: int) -> None:
    """Wherever the bit has turned: in the data, in the request id or header, in one of the checksums."""
    bad = bytearray(stored(0, 3))
    bad[len(stored(0, 1)) + place] ^= 1
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        with pytest.raises(RequestFailedError, match=r"checksum of transaction 1 .* nothing of the append"):
            await append(server, 0, bytes(bad), 3)
        assert await server.max_transaction_id(5, PARTITION) == -1
        counters = json.loads(node.registry.to_json())["counters"]
        assert counters["waltz-storage.partition-3.damaged-append-request"]["count"] == 1
        await append(server, 0, stored(0, 3), 3)
        assert await server.max_transaction_id(5, PARTITION) == 2


async def test_a_changed_wire_record_is_counted_too(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        one = records(0, 1)[0]
        with pytest.raises(RequestFailedError, match="checksum of transaction 0"):
            await server.append(5, PARTITION, [one._replace(data=one.data + b"x")])
        counters = json.loads(node.registry.to_json())["counters"]
        assert counters["waltz-storage.partition-3.damaged-append-request"]["count"] == 1


async def test_a_damaged_record_is_handed_out_as_it_is_and_found_by_the_list(tmp_path: Path) -> None:
    """The reader checks stored records; asked for in the form that the node checks, it is counted there."""
    disk = empty_disk()
    async with (
        running_node("/data", fs=disk, executor=GatedExecutor(), assign=(PARTITION,)) as node,
        server_of(node) as server,
    ):
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 3), 3)
        file = disk.open(segment_path(PARTITION, 0))
        at = 128 + len(stored(0, 1)) + 30
        byte = file.pread(1, at)
        file.pwrite(bytes((byte[0] ^ 4,)), at)
        file.close()
        first, count, data = await server.stored_range(5, PARTITION, 0, 2, committed=2, max_bytes=1 << 20)
        with pytest.raises(ProtocolError):
            cut_stored(data, 0, PARTITION, first, first + count - 1, count)
        for _ in range(3):
            with pytest.raises(RequestFailedError, match="damaged"):
                await server.record_list(5, PARTITION, 1, 2)
        assert node.manager.get(PARTITION).damaged_reads == 3
        with capture_logs() as lines:
            await node.disk.look()
            await node.disk.look()
        reason = "transaction 1: the stored record is damaged"
        assert [line for line in lines if line["event"] == "a record cannot be read"] == [
            {
                "event": "a record cannot be read",
                "log_level": "warning",
                "partition": PARTITION,
                "reason": reason,
            }
        ]


def body(first: int, count: int, data: bytes) -> memoryview:
    return memoryview(b"".join(stored_append_parts(1, 5, 1, PARTITION, -1, first, count, data))[7:])


def test_large_appends_are_checked_in_steps() -> None:
    count = 2 * STEP_RECORDS + 7
    data = stored(4, count, 4)
    assert is_much(body(4, count, data))
    assert not is_much(body(4, 3, stored(4, 3)))
    channel = None
    request = parse_append(channel, body(4, count, data), 0.0)  # type: ignore[arg-type]
    assert request.batch is not None
    assert (request.batch.first_txid, request.batch.record_count, request.batch.data) == (4, count, data)
    assert sum(request.batch.sizes) == len(data)
    flipped = bytearray(data)
    flipped[-20] ^= 1
    refused = parse_append(channel, body(4, count, bytes(flipped)), 0.0)  # type: ignore[arg-type]
    assert refused.damaged
    assert refused.batch is None
    for first, number, raw in (
        (4, count, data[:-1]),
        (4, count - 1, data),
        (4, count + 1, data),
        (5, count, data),
        (4, -1, data),
        (4, MAX_APPEND_RECORDS + 1, data),
    ):
        with pytest.raises(ProtocolError):
            parse_append(channel, body(first, number, raw), 0.0)  # type: ignore[arg-type]


async def test_records_of_another_partition_are_refused_and_malformed_ones_end_the_connection(
    tmp_path: Path,
) -> None:
    """A node may have stored such records in version 0: the copy of them must not stop other partitions."""
    async with running_node(tmp_path, assign=(2, PARTITION)) as node, server_of(node) as server:
        await server.last_session_info(5, 2)

        async def answer(data: bytes) -> Exception | None:
            done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
            server.submit_stored_append(5, 2, -1, 0, 2, data, done.set_result)
            return await done

        refusal = await answer(stored(0, 2))
        assert isinstance(refusal, RequestFailedError)
        assert "of partition 3 in a block of 2: nothing of the append is stored" in str(refusal)
        own = stored_of_record(wire_record(0, payload(0), partition_id=2))
        assert isinstance(await answer(own + stored(1, 1)), RequestFailedError)
        assert isinstance(await answer(stored(1, 2)), ChannelClosedError)  # and the wrong ids
        assert node.manager.get(2).max_txid == -1


async def test_a_range_below_waiting_appends_does_not_wait_for_their_sync(tmp_path: Path) -> None:
    """From another connection, as for lists: it reads what is synced."""
    gate = GatedExecutor()
    async with (
        running_node("/data", fs=empty_disk(), executor=gate, assign=(PARTITION,)) as node,
        server_of(node) as server,
        server_of(node) as reader,
    ):
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 3), 3)
        found = await asyncio.gather(
            append(server, 3, stored(3, 1), 1, committed=2),
            reader.stored_range(5, PARTITION, 0, 9, committed=2, max_bytes=1 << 20),
        )
        assert found[1] == (0, 3, stored(0, 3))


async def test_a_full_queue_refuses_stored_appends_by_their_bytes(tmp_path: Path) -> None:
    gate = GatedExecutor()
    limits = QueueLimits(max_bytes=4000)
    async with (
        running_node(
            "/data", fs=empty_disk(), executor=gate, assign=(PARTITION,), queue_limits=limits
        ) as node,
        server_of(node) as server,
    ):
        await server.last_session_info(5, PARTITION)
        gate.open = False
        ends: list[Exception | None] = []
        for number in range(3):
            server.submit_stored_append(
                5, PARTITION, -1, 20 * number, 20, stored(20 * number, 20, 60), ends.append
            )
        while not ends:
            await asyncio.sleep(0.01)
        assert "queue of the partition is full" in str(ends[0])
        gate.release()


async def test_a_range_over_two_segments_exceeds_its_bytes_by_no_record_of_the_second(tmp_path: Path) -> None:
    """Else a small record before a huge one makes an answer that no frame can hold, on every try."""
    async with running_node(tmp_path, assign=(PARTITION,), threshold=100) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 1, 200), 1)
        await append(server, 1, stored(1, 1, 50_000), 1)
        assert await ranged(server, 0, 1, 1, max_bytes=1000) == (0, 1, stored(0, 1, 200))
        assert await ranged(server, 1, 1, 1, max_bytes=1000) == (1, 1, stored(1, 1, 50_000))


async def test_safety_d1_a_mark_ends_with_the_session_that_sent_it(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        await append(server, 0, stored(0, 2), 2, committed=90)
        await server.set_low_water_mark(6, PARTITION, 1)
        server.submit_stored_append(6, PARTITION, -1, 2, 3, stored(2, 3), lambda _: None)
        assert await server.max_transaction_id(6, PARTITION) == 4
        assert node.manager.get(PARTITION).committed == 1


async def test_a_record_whose_data_does_not_match_its_own_checksum_is_not_stored(tmp_path: Path) -> None:
    """Though the checksum over everything fits: version 0 could not read it."""
    wrong = bytearray(wire_record(0))
    wrong[-1] ^= 1
    async with running_node(tmp_path, assign=(PARTITION,)) as node, server_of(node) as server:
        await server.last_session_info(5, PARTITION)
        with pytest.raises(RequestFailedError, match="data checksum"):
            await append(server, 0, stored_of_record(bytes(wrong)), 1)
        assert node.manager.get(PARTITION).max_txid == -1
