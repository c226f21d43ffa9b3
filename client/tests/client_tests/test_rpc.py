"""Data, high-water mark and administrative requests."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import settings_for, until
from waltz_client import (
    ClientClosedError,
    DeadlineExceededError,
    RequestDeadlineError,
    ServerRequestError,
    TransactionNotFoundError,
    UsageError,
    WaltzClient,
)
from waltz_client._internal.rpc import client as rpc_client
from waltz_client._internal.rpc.client import SCAN_SECONDS
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.data import pack_data_request, parse_data_response
from waltz_protocol.messages.client import TransactionDataRequest, TransactionDataResponse
from waltz_protocol.types import Endpoint, ReqId, data_checksum
from waltz_testkit.fake_cluster import FakeCluster, fake_cluster


async def test_failed_reads_are_retried_with_growing_delays(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(3)
    cluster.partitions[0].failing_reads[1] = 4
    client = await connect()
    assert (await client.get_data(0, 1, deadline_seconds=5)).startswith(b"1")
    assert cluster.partitions[0].reads == [1] * 5


async def test_client_server_13_13_an_id_above_the_mark_is_never_asked_for(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(3)
    client = await connect()
    with pytest.raises(TransactionNotFoundError, match="high-water mark is 2"):
        await client.get_data(0, 3)
    assert cluster.partitions[0].reads == []
    with pytest.raises(UsageError):
        await client.get_data(0, -1)


async def test_client_server_13_30_a_silent_server_is_asked_again_until_the_deadline(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(requestResend=200)
    cluster.partitions[0].silent_reads = 2
    assert await client.high_water_mark(0, deadline_seconds=5) == -1
    cluster.partitions[0].silent_reads = 1000
    with pytest.raises(RequestDeadlineError, match="no answer for its high-water mark in time"):
        await client.high_water_mark(0, deadline_seconds=0.3)


async def test_client_server_13_31_a_wrong_checksum_is_not_handed_out() -> None:
    good = CLIENT.encode_body(
        TransactionDataResponse(ReqId(1, 2, 3, 4), 100, b"hello", data_checksum(b"hello"), None), 4
    )
    assert parse_data_response(memoryview(good)).data == b"hello"
    for broken in (good[:-1] + b"\0", good[:-1], good + b"\0", good[:20]):
        with pytest.raises(ProtocolError):
            parse_data_response(memoryview(broken))
    failure = CLIENT.encode_body(TransactionDataResponse(ReqId(1, 2, 3, 4), 100, None, 0, "nö"), 4)
    parsed = parse_data_response(memoryview(failure))
    assert (parsed.data, parsed.error, parsed.transaction_id, parsed.seq_num) == (None, "nö", 100, 4)
    request = CLIENT.encode(TransactionDataRequest(ReqId(1, 2, 3, 4), 100), 4)
    assert pack_data_request(4, 1, 2, 3, 4, 100) == request


async def test_client_server_13_32_administrative_calls_do_not_share_answers(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    server = cluster.servers[0]
    server.held_admin = []
    both = asyncio.gather(
        client.servers.add_preferred(server.endpoint, [0]),
        client.servers.remove_preferred(server.endpoint, [1]),
        client.servers.add_preferred(server.endpoint, [1]),
        client.servers.partitions(server.endpoint),
    )
    await until(lambda: len(server.held_admin or []) == 4)
    for answer in reversed(server.held_admin):
        answer()
    assert list(await both) == [True, True, True, [0, 1]]
    server.held_admin = None
    assert await client.servers.health(server.endpoint) == {0: True, 1: True}
    assert await client.servers.storage_connectivity(server.endpoint) == {"st1:55280": True}
    assert client.servers.endpoints() == sorted(s.endpoint for s in cluster.servers)
    with pytest.raises(UsageError, match="at least one"):
        await client.servers.add_preferred(server.endpoint, [])


async def test_a_server_may_be_named_by_its_address(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    assert await client.servers.health(str(cluster.servers[0].endpoint)) == {0: True, 1: True}
    for wrong in ("nowhere", "host:0", "", 7, None, ("host", 1)):
        with pytest.raises(UsageError, match=r"host:port|a port"):
            await client.servers.health(wrong)  # type: ignore[arg-type]


async def test_a_link_to_a_server_of_another_cluster_ends_with_its_last_request(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    rpc, own = client._entered.rpc, cluster.servers[0].endpoint
    await client.servers.health(own)
    nobody = Endpoint("127.0.0.1", 1)
    async with fake_cluster(1, 1) as other:
        stranger = other.servers[0]
        stranger.held_admin = []
        first = spawn(client.servers.health(stranger.endpoint), "first")
        second = spawn(client.servers.health(stranger.endpoint), "second")
        await until(lambda: len(stranger.held_admin or []) == 2)
        stranger.held_admin.pop()()
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        rpc.set_endpoints(dict(rpc._endpoints), {own})  # discovery, which does not know it
        assert set(rpc._servers) == {own, stranger.endpoint}
        stranger.held_admin.pop()()
        await asyncio.gather(first, second)
        assert set(rpc._servers) == {own}
    with pytest.raises(RequestDeadlineError):
        await client.servers.health(nobody, deadline_seconds=0.2)
    assert set(rpc._servers) == {own}


async def test_an_old_server_does_not_know_a_request() -> None:
    async with (
        fake_cluster(1, versions=(0,)) as cluster,
        WaltzClient.connect(settings_for(cluster), store=cluster.session()) as client,
    ):
        with pytest.raises(ServerRequestError, match="version"):
            await client.servers.health(cluster.servers[0].endpoint)


async def test_client_server_13_34_and_39_requests_wait_for_the_replacement_connection(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    partition.fill(3)
    client = await connect()
    assert await client.get_data(0, 0)
    partition.reads_held = True
    pending = asyncio.gather(client.get_data(0, 1), client.get_data(0, 2))
    await until(lambda: len(partition.reads) == 3)
    partition.reads_held = False
    cluster.servers[0].cut_connections()
    during = asyncio.gather(client.get_data(0, 0), client.high_water_mark(0))
    assert [d[:1] for d in await pending] == [b"1", b"2"]
    data, mark = await during
    assert data.startswith(b"0")
    assert mark == 2


async def test_requests_follow_a_moved_partition(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    partition.fill(2)
    client = await connect()
    assert await client.get_data(0, 0)
    partition.reads_held = True
    pending = asyncio.gather(client.get_data(0, 1))
    await until(lambda: len(partition.reads) == 2)
    partition.reads_held = False
    await cluster.move(0, cluster.servers[1])
    assert (await pending)[0].startswith(b"1")


async def test_a_broken_connection_ends_an_administrative_call(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    server = cluster.servers[0]
    server.held_admin = []
    call = asyncio.gather(client.servers.partitions(server.endpoint), return_exceptions=True)
    await until(lambda: server.held_admin)
    server.cut_connections()
    assert isinstance((await call)[0], ServerRequestError)


async def test_an_absent_server_is_named(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    with pytest.raises(RequestDeadlineError, match=r"127\.0\.0\.1:1"):
        await client.servers.partitions(Endpoint("127.0.0.1", 1), deadline_seconds=0.5)


async def test_requests_to_servers_end_with_their_client(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    requests, rpc = client.servers, client._entered.rpc
    absent = Endpoint("127.0.0.1", 1)
    waiting = asyncio.gather(requests.health(absent, deadline_seconds=60), return_exceptions=True)
    await until(lambda: absent in rpc._servers and rpc._servers[absent].ready_waiters)
    began = asyncio.get_running_loop().time()
    await client.close()
    (error,) = await waiting
    assert asyncio.get_running_loop().time() - began < 30
    assert isinstance(error, ClientClosedError)
    held = set(rpc._servers)
    with pytest.raises(ClientClosedError):
        await requests.partitions(cluster.servers[1].endpoint)
    assert set(rpc._servers) <= held  # no link, which nobody would end


async def test_requests_that_have_ended_wait_no_longer_for_a_server(connect: ConnectClient) -> None:
    client = await connect()
    absent = Endpoint("127.0.0.1", 1)
    lasting = asyncio.gather(client.servers.health(absent, deadline_seconds=60), return_exceptions=True)
    for _ in range(3):
        with pytest.raises(RequestDeadlineError):
            await client.servers.health(absent, deadline_seconds=0.01)
    assert len(client._entered.rpc._servers[absent].ready_waiters) == 1
    await client.close()
    await lasting


async def test_client_server_13_38_failing_connections_are_not_tried_in_a_hot_loop() -> None:
    """A server that accepts and says no Hello the client knows: the delays grow."""
    attempts = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.write(b"HTTP/1.1 400 no\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with fake_cluster(1) as cluster:
        real = cluster.servers[0].endpoint
        await cluster.publish(absent=(cluster.servers[0],))
        cluster.servers[0].endpoint = Endpoint("127.0.0.1", port)
        await cluster.publish()
        async with WaltzClient.connect(settings_for(cluster), store=cluster.session()) as client:
            with pytest.raises(DeadlineExceededError, match="cannot connect to 127"):
                await client.append(partition=0, data=b"x", deadline_seconds=1.0)
            assert attempts <= 16, "two connections, 25 to 50 ms doubling to a second"
        cluster.servers[0].endpoint = real
    listener.close()
    await listener.wait_closed()


async def test_a_client_without_requests_does_not_look_after_them(
    cluster: FakeCluster, connect: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect()
    await client.high_water_mark(0)
    await asyncio.sleep(2 * SCAN_SECONDS)  # the scan that finds nothing left
    scans: list[object] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds == 123.0:
            scans.append(seconds)
            seconds = SCAN_SECONDS
        await real_sleep(seconds)

    monkeypatch.setattr(rpc_client, "SCAN_SECONDS", 123.0)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await real_sleep(5 * SCAN_SECONDS)
    assert scans == []
    assert await client.high_water_mark(0) == -1
    await real_sleep(2 * SCAN_SECONDS)
    assert len(scans) == 1
