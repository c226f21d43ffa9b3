"""read_range: exact ranges in columns, over everything that can happen to a connection."""

import asyncio
from array import array
from collections.abc import Sequence

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from waltz_client import (
    ClientClosedError,
    PartitionNotFoundError,
    RangeBatch,
    RequestDeadlineError,
    TransactionNotFoundError,
    UsageError,
    WaltzClient,
)
from waltz_protocol.types import data_checksum
from waltz_testkit.fake_cluster import FakeCluster


async def read(
    client: WaltzClient, first: int, last: int, *, batch_transactions: int = 300, timeout_seconds: float = 20
) -> list[RangeBatch]:
    batches = client.read_range(
        0, first, last, batch_transactions=batch_transactions, timeout_seconds=timeout_seconds
    )
    return [batch async for batch in batches]


def ids(batches: Sequence[RangeBatch]) -> list[int]:
    return [transaction_id for batch in batches for transaction_id in batch.transaction_ids]


async def test_a_range_has_exactly_its_transactions_in_columns(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(2_000)
    client = await connect()
    expected = [t async for t in client.feed(0, after=99, until=1_899)]
    batches = await read(client, 100, 1_899)
    assert [t for batch in batches for t in batch.transactions()] == expected
    assert len(batches) > 4
    first = batches[0]
    assert first.data is not None
    assert first.offsets is not None
    assert first.checksums == array(
        "i", [_signed(data_checksum(t.data or b"")) for t in expected[: len(first)]]
    )
    assert first.offsets[-1] == len(first.data)


def _signed(checksum: int) -> int:
    return checksum - 2**32 if checksum >= 2**31 else checksum


async def test_without_data_no_payload_is_asked_for(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(5_000)
    client = await connect()
    batches = [batch async for batch in client.read_range(0, 0, 4_999, with_data=False)]
    assert ids(batches) == list(range(5_000))
    assert [(batch.data, batch.offsets, batch.checksums) for batch in batches] == [(None, None, None)] * len(
        batches
    )
    assert batches[0].transactions()[0].data is None
    assert cluster.partitions[0].reads == []


async def test_what_the_header_rules_out_is_not_asked_for(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    for number in range(40):
        await client.append(partition=0, data=b"%d" % number, header=number % 4)
    cluster.partitions[0].reads.clear()
    batches = [batch async for batch in client.read_range(0, 1, 38, where=lambda header: header == 3)]
    assert ids(batches) == list(range(3, 38, 4))
    assert sorted(cluster.partitions[0].reads) == ids(batches)
    assert [batch async for batch in client.read_range(0, 1, 38, where=lambda header: header == 9)] == []


async def test_empty_and_single_ranges(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(10)
    client = await connect()
    assert await read(client, 5, 4) == []
    assert ids(await read(client, 9, 9)) == [9]
    assert ids(await read(client, 0, 9, batch_transactions=1)) == list(range(10))


async def test_a_batch_is_bounded_by_its_bytes(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    for _ in range(20):
        await client.append(partition=0, data=bytes(10_000))
    batches = [batch async for batch in client.read_range(0, 0, 19, batch_bytes=40_000)]
    assert ids(batches) == list(range(20))
    assert max(len(batch.data or b"") for batch in batches) == 40_000


async def test_a_range_beyond_the_log_is_an_error_and_not_a_wait(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(10)
    client = await connect()
    with pytest.raises(TransactionNotFoundError, match="partition 0 ends at transaction 9, the range at 10"):
        await read(client, 0, 10, timeout_seconds=2)
    with pytest.raises(UsageError):
        await read(client, -1, 3)
    with pytest.raises(UsageError):
        client.read_range(0, 0, 3, batch_bytes=0)
    with pytest.raises(PartitionNotFoundError):
        client.read_range(2, 0, 3)


async def test_lost_connections_and_failing_reads_are_invisible(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    partition.fill(3_000)
    for transaction_id in (0, 7, 700, 2_999):
        partition.failing_reads[transaction_id] = 3
    client = await connect(requestResend=200)
    batches: list[RangeBatch] = []
    async for batch in client.read_range(0, 0, 2_999, batch_transactions=200):
        batches.append(batch)
        if len(batches) in (2, 5):
            cluster.servers[0].cut_connections()
        if len(batches) == 7:
            await cluster.move(0, cluster.servers[1])
    assert ids(batches) == list(range(3_000))
    assert all(
        t.data is not None and t.data.startswith(b"%d" % t.transaction_id)
        for b in batches
        for t in b.transactions()
    )


async def test_a_payload_with_a_wrong_checksum_is_asked_for_again_and_not_handed_out(
    cluster: FakeCluster, connect: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.partitions[0].fill(300)
    wrong = iter([True] * 3)
    monkeypatch.setattr(
        "waltz_testkit.fake_server.data_checksum", lambda data: data_checksum(data) ^ next(wrong, False)
    )
    client = await connect(requestResend=200)
    batches = await read(client, 0, 299)
    assert ids(batches) == list(range(300))
    assert next(wrong, None) is None
    checksums = [checksum for batch in batches for checksum in batch.checksums or ()]
    payloads = [t.data or b"" for batch in batches for t in batch.transactions()]
    assert checksums == [_signed(data_checksum(payload)) for payload in payloads]


async def test_requests_that_are_never_answered_are_sent_again_and_nothing_else(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    partition.fill(100)
    client = await connect(requestResend=200)
    await client.high_water_mark(0)
    partition.reads_held = True
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(client, 0, 99))
        await until(lambda: len(partition.reads) >= 8)
        partition.reads_held = False
    assert ids(reading.result()) == list(range(100))
    assert sorted(set(partition.reads)) == list(range(100))


async def test_a_partition_that_gives_nothing_ends_the_range_with_a_reason(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    partition.fill(100)
    client = await connect()
    partition.reads_held = True
    with pytest.raises(RequestDeadlineError, match=r"nothing of its transactions 0 to 99 was read for 0.3 s"):
        await read(client, 0, 99, timeout_seconds=0.3)
    partition.reads_held = False
    assert ids(await read(client, 0, 99)) == list(range(100))


async def test_closing_in_the_middle_leaves_nothing_behind(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(2_000)
    client = await connect()
    async with client.read_range(0, 0, 1_999, batch_transactions=100) as batches:
        assert (await anext(batches)).transaction_ids[0] == 0
    with pytest.raises(StopAsyncIteration):
        await anext(batches)
    batches = client.read_range(0, 0, 1_999, batch_transactions=100)
    await anext(batches)
    await client.close()
    with pytest.raises(ClientClosedError):
        async for _ in batches:
            pass


@pytest.mark.parametrize("with_data", [True, False])
async def test_a_range_that_is_closed_while_it_begins_leaves_nothing_behind(
    cluster: FakeCluster, connect: ConnectClient, monkeypatch: pytest.MonkeyPatch, with_data: bool
) -> None:
    """A blocking range may be closed by another thread than the one that reads it."""
    cluster.partitions[0].fill(100)
    client = await connect()
    await client.writable(0)
    partitions, asked, answered = client._open.partitions, asyncio.Event(), asyncio.Event()
    ask = partitions.server_high_water_mark

    async def slow(partition_id: int, deadline_seconds: float | None = None) -> int:
        asked.set()
        await answered.wait()
        return await ask(partition_id, deadline_seconds)

    monkeypatch.setattr(partitions, "server_high_water_mark", slow)
    batches = client.read_range(0, 0, 99, with_data=with_data)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        reading = group.create_task(anext(batches, None))
        await asked.wait()
        await batches.aclose()
        answered.set()
    assert reading.result() is None
    readers = partitions.streams[0].readers
    assert (len(readers), len(readers.blocks), len(client._open.rpc._active)) == (0, 0, 0)
