"""Compressed blocks in the client: who is asked for them, that the application sees no difference, and what
is refused."""

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from client_tests.test_blocks import Wire, record
from waltz_client import ConfigError, WaltzClient
from waltz_client._internal.rpc.block_feed import BlockFeed
from waltz_client._internal.rpc.session import RpcSession
from waltz_client.settings import ClientSettings
from waltz_protocol.aio.channel import Channel
from waltz_protocol.directory import Directory
from waltz_protocol.errors import ProtocolError, RecordChecksumError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.blocks import LAST_BLOCK, block_head
from waltz_protocol.frames.compressed_blocks import TAKES_ZSTD, ZSTD_BLOCK, BlockCompressor, BlockExpander
from waltz_protocol.handshake import ZSTD_BLOCKS, Hello
from waltz_protocol.types import Endpoint, Generation, PartitionId, ReqId
from waltz_server.partition.compressed_blocks import CompressedBlocks
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import wire_record

HERE = Endpoint("127.0.0.1", 1)
RECORDS = [record(txid, data=b'{"account": %d}' % txid * 50) for txid in range(10, 15)]


def session_of(*, asks: bool, server_can: bool) -> tuple[RpcSession, Channel, list[bytes]]:
    """A session on a channel that keeps what is sent."""
    sent: list[bytes] = []
    expander = BlockExpander("a test") if asks else None
    session = RpcSession(HERE, lambda _: None, lambda *_: None, expander)
    hello = Hello((5, ZSTD_BLOCKS) if server_can else (5,), None)
    stub = SimpleNamespace(version=5, peer_hello=hello, closed=False, send=sent.append, pass_over=id)
    session.established(cast("Channel", stub))
    return session, cast("Channel", stub), sent


def feed_on(session: RpcSession) -> BlockFeed:
    feed = BlockFeed(
        Wire(),
        0,
        9,
        None,
        window_transactions=100,
        window_bytes=100_000,
        headers=(),
        on_ready=lambda: None,
        on_covered=lambda *_: None,
    )
    feed.seq_num = 1
    session.calls[0, 1] = feed
    feed._granted, feed._granted_bytes = 100, 100_000
    return feed


def body(records: bytes, flags: int = 0) -> memoryview:
    packed = BlockCompressor("a test").packed(records)
    assert packed is not None
    head = block_head(5, ReqId(1, 1, 0, 1).pack(), 10, 14, 5, ZSTD_BLOCK | flags, len(packed))
    return memoryview(head + packed)[FRAME_HEADER_SIZE:]


@pytest.mark.parametrize(
    ("asks", "server_can", "flags"), [(True, True, TAKES_ZSTD), (True, False, 0), (False, True, 0)]
)
def test_a_server_is_asked_that_can(asks: bool, server_can: bool, flags: int) -> None:
    session, _, _ = session_of(asks=asks, server_can=server_can)
    assert session.takes_zstd is bool(flags)


def test_a_compressed_block_is_the_block() -> None:
    session, channel, _ = session_of(asks=True, server_can=True)
    feed = feed_on(session)
    session.frame_received(channel, body(b"".join(RECORDS)))
    block = feed.take()
    assert block is not None
    assert block.data == b"".join(RECORDS)
    assert feed.position == 14
    late = bytearray(body(b"".join(RECORDS), LAST_BLOCK))
    late[13:17] = (7).to_bytes(4, "big")  # the sequence number of a feed that has ended
    session.frame_received(channel, memoryview(late))
    assert feed.take() is None


def test_the_window_is_in_bytes_of_records() -> None:
    session, channel, _ = session_of(asks=True, server_can=True)
    feed = feed_on(session)
    session.frame_received(channel, body(b"".join(RECORDS)))
    assert feed.buffered_bytes == sum(map(len, RECORDS))
    assert feed._granted_bytes == 100_000 - sum(map(len, RECORDS))


def test_what_was_changed_before_it_was_compressed_is_found() -> None:
    session, channel, _ = session_of(asks=True, server_can=True)
    feed = feed_on(session)
    changed = bytearray(b"".join(RECORDS))
    changed[50] ^= 1
    with pytest.raises(RecordChecksumError):
        session.frame_received(channel, body(bytes(changed)))
    assert feed.take() is None
    assert feed.position == 9


@pytest.mark.parametrize(("asks", "server_can"), [(False, True), (True, False)])
def test_a_compressed_block_that_was_not_asked_for_is_refused(asks: bool, server_can: bool) -> None:
    session, channel, _ = session_of(asks=asks, server_can=server_can)
    feed = feed_on(session)
    with pytest.raises(ProtocolError, match="unknown flags"):
        session.frame_received(channel, body(b"".join(RECORDS)))
    assert feed.take() is None


COUNT = 300


async def read(server: LoopbackServer, settings: Mapping[str, object]) -> list[bytes]:
    """Everything, by a feed and by a range, which must agree."""
    here = Endpoint("127.0.0.1", server.listener.port)
    owned = {PartitionId(0): Generation(1)}
    server.directory.update(Directory(1, "c", UUID(int=1), 1, {here: owned}))
    given = {"servers": [str(here)], "client.ssl.enabled": False, **settings}
    async with WaltzClient.connect(given) as client:
        followed = []
        async for transaction in client.feed(0, after=-1, until=COUNT - 1):
            followed.append(transaction.data)
        ranged = [bytes(batch.data) async for batch in client.read_range(0, 0, COUNT - 1)]
        assert b"".join(ranged) == b"".join(followed)
        return followed


@pytest.mark.parametrize("asks", ["zstd", "none"])
@pytest.mark.parametrize("server_can", [True, False])
async def test_a_client_and_a_server_of_any_mixture(asks: str, server_can: bool) -> None:
    compressed = CompressedBlocks(BlockCompressor("a test")) if server_can else None
    server = LoopbackServer({0: 1}, num_partitions=1, compressed=compressed)
    data = [b'{"transfer": %d, "amount": 100}' % number * 10 for number in range(COUNT)]
    server.backend.nodes.logs[0] = [
        wire_record(number, ReqId(9, 1, 0, number), one) for number, one in enumerate(data)
    ]
    async with server:
        assert await read(server, {"client.feedCompression": asks}) == data
    before, after = (
        server.metrics.meter(f"waltz-server.feed-bytes-{side}-compression").count
        for side in ("before", "after")
    )
    if asks == "zstd" and server_can:
        assert before == 2 * sum(len(one) + 40 for one in data)
        assert after * 3 < before
    else:
        assert before == after == 0


def settings(**keys: Any) -> ClientSettings:
    given = {"servers": ["localhost:1"], "client.ssl.enabled": False}
    return ClientSettings.load({**given, **{f"client.{key}": value for key, value in keys.items()}})


async def test_without_the_package_the_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"needs the package zstandard.* waltz-client with its extra zstd"):
        async with WaltzClient.connect(settings(feedCompression="zstd")):
            pass
    assert settings().block_expander() is None


def test_the_setting_needs_version_5() -> None:
    given = {"zookeeper.connectString": "z:1", "zookeeper.sessionTimeout": 1000, "cluster.root": "/w"}
    keys = {"client.feedCompression": "zstd", "client.maxProtocolVersion": 4}
    with pytest.raises(ConfigError, match=r"feedCompression zstd needs client.maxProtocolVersion 5"):
        ClientSettings.load({**given, **keys})
    with pytest.raises(ConfigError, match="feedCompression"):
        settings(feedCompression="gzip")
