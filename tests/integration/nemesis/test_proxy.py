"""The fault proxy: passes everything on, and each fault is what its name says."""

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.nemesis.peers import UNKNOWN, Peers
from tests.integration.nemesis.proxy import BOTH, LOOPBACK, Direction, FaultProxy, Rule
from waltz_testkit.ports import free_port, free_ports

SHORT_SECONDS = 0.1
LONG_SECONDS = 10.0
LARGE = os.urandom(3_000_000)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bench:
    """An echo server behind a proxy; who connects is decided by the test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.source = "client-1"
        self.proxy = FaultProxy(lambda source_port, port: self.source, random.Random(1))
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, source: str = "client-1", port: int = 0) -> Streams:
        self.source = source
        reader, writer = await asyncio.open_connection(LOOPBACK, port or self.port)
        self._writers.append(writer)
        return reader, writer

    async def connect(self, source: str = "client-1") -> Streams:
        """A connection that has passed a byte both ways."""
        streams = await self.open(source)
        assert await echo(streams, b"?") == b"?"
        return streams

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        await self.proxy.close()


async def echo(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    async with asyncio.timeout(LONG_SECONDS):
        return await reader.readexactly(len(data))


async def silent(streams: Streams) -> bool:
    try:
        async with asyncio.timeout(SHORT_SECONDS):
            return not await streams[0].read(1)
    except TimeoutError:
        return True


async def _echo_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # that is what the proxy is for
    finally:
        writer.close()


@asynccontextmanager
async def a_bench() -> AsyncIterator[Bench]:
    server = await asyncio.start_server(_echo_server, LOOPBACK, 0)
    real = server.sockets[0].getsockname()[1]
    bench = Bench(free_port())
    await bench.proxy.listen("server-1", bench.port, lambda: real)
    try:
        yield bench
    finally:
        await bench.close()
        server.close()


async def test_everything_passes_both_ways_and_the_end_too() -> None:
    async with a_bench() as bench:
        streams = await bench.connect()
        assert await echo(streams, LARGE) == LARGE
        streams[1].write_eof()
        async with asyncio.timeout(LONG_SECONDS):
            assert await streams[0].read() == b""
        assert dict(bench.proxy.pairs) == {("client-1", "server-1"): 1}


@pytest.mark.parametrize("direction", list(Direction))
async def test_one_way_blocked_holds_and_delivers_late(direction: Direction) -> None:
    async with a_bench() as bench:
        streams = await bench.connect()
        rule = Rule("client-*", "server-1", frozenset({direction}))
        bench.proxy.add(rule)
        streams[1].write(b"late")
        assert await silent(streams)
        bench.proxy.remove(rule)
        async with asyncio.timeout(LONG_SECONDS):
            assert await streams[0].readexactly(4) == b"late"


async def test_a_new_connection_of_a_blocked_pair_hangs_and_other_pairs_work() -> None:
    async with a_bench() as bench:
        bench.proxy.add(Rule("client-1", "*", BOTH))
        blocked = await bench.open()
        blocked[1].write(b"x")
        assert await silent(blocked)
        other = await bench.connect("client-2")
        assert await echo(other, b"fine") == b"fine"
        bench.proxy.heal()
        async with asyncio.timeout(LONG_SECONDS):
            assert await blocked[0].readexactly(1) == b"x"


async def test_reset_is_a_reset_and_only_for_the_pair() -> None:
    async with a_bench() as bench:
        first, second = await bench.connect("client-1"), await bench.connect("client-2")
        assert bench.proxy.reset("client-1", "server-*") == 1
        with pytest.raises(ConnectionResetError):
            await first[0].read()
        assert await echo(second, b"still") == b"still"


async def test_cut_delivers_a_part_and_ends() -> None:
    async with a_bench() as bench:
        streams = await bench.connect()
        assert bench.proxy.cut("*", "server-1") == 1
        streams[1].write(b"0123456789" * 100)
        async with asyncio.timeout(LONG_SECONDS):
            assert len(await streams[0].read()) < 1000


async def test_latency_and_slow_link() -> None:
    async with a_bench() as bench:
        streams = await bench.connect()
        late = Rule("*", "*", latency_s=SHORT_SECONDS)
        bench.proxy.add(late)
        started = time.monotonic()
        await echo(streams, b"x")
        assert time.monotonic() - started >= 2 * SHORT_SECONDS
        bench.proxy.remove(late)
        bench.proxy.add(Rule("*", "*", bytes_per_s=10_000))
        started = time.monotonic()
        await echo(streams, bytes(4_000))
        assert time.monotonic() - started >= 0.35


async def test_nobody_behind_it_is_a_reset() -> None:
    async with a_bench() as bench:
        port, nobody = free_ports(2)
        await bench.proxy.listen("server-2", port, lambda: nobody)
        reader, _ = await bench.open(port=port)
        with pytest.raises(ConnectionResetError):
            await reader.read()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_the_process_at_the_other_end_is_found() -> None:
    async with a_bench() as bench:
        pids = {"somebody": 1, "this test": os.getpid()}
        peers = Peers(lambda: pids)
        _, writer = await bench.connect()
        source_port = writer.get_extra_info("sockname")[1]
        assert peers.who(source_port, bench.port) == "this test"
        assert peers.who(source_port, bench.port + 1) == UNKNOWN
        pids.clear()
        assert peers.who(source_port, bench.port) == UNKNOWN
