"""The Graphite reporter against a listener of its own."""

import asyncio
from collections import Counter

import pytest

from waltz_runtime.graphite import GraphiteReporter, GraphiteSettings
from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.slices import METRICS_PER_SLICE


def registry() -> MetricsRegistry:
    made = MetricsRegistry()
    for i in range(100):
        made.counter(f"waltz-server.counter-{i}").inc(i)
    return made


async def test_report_over_tcp_is_lines_with_the_prefix() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received.put(await reader.read())
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        settings = GraphiteSettings("127.0.0.1", server.sockets[0].getsockname()[1], "pre")
        assert await GraphiteReporter(registry(), settings, wall_clock=lambda: 9.9).report()
        text = (await received.get()).decode()
    assert text.endswith("\n")
    assert "pre.waltz-server.counter-7.count 7 9" in text.splitlines()


async def test_report_over_udp_keeps_lines_whole() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    class Take(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            received.put_nowait(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Take, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    settings = GraphiteSettings("127.0.0.1", port, "pre", use_udp=True)
    assert await GraphiteReporter(registry(), settings).report()
    lines: list[str] = []
    while len(lines) < 100:
        datagram = await received.get()
        assert len(datagram) <= 1400
        assert datagram.endswith(b"\n")
        lines += datagram.decode().splitlines()
    transport.close()
    assert len(set(lines)) == 100


@pytest.mark.parametrize("use_udp", [False, True], ids=["tcp", "udp"])
async def test_a_report_of_many_partitions_does_not_hold_up_the_loop(use_udp: bool) -> None:
    """A server that stands still for seconds, once a minute, is evicted by the others."""
    turn, reads = 0, Counter[int]()

    def read() -> int:
        reads[turn] += 1
        return 7

    made = MetricsRegistry()
    for number in range(40 * METRICS_PER_SLICE):
        made.gauge(f"waltz-server.partition-{number}.mark", read)

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    running = asyncio.get_running_loop().create_task(turns())
    await GraphiteReporter(made, GraphiteSettings("127.0.0.1", 1, use_udp=use_udp)).report()
    running.cancel()
    await asyncio.wait([running])
    assert reads.total() == 40 * METRICS_PER_SLICE
    assert max(reads.values()) <= METRICS_PER_SLICE


async def test_absent_graphite_is_no_failure() -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    reporter = GraphiteReporter(registry(), GraphiteSettings("127.0.0.1", port))
    assert not await reporter.report()
    assert not await reporter.report()


@pytest.mark.parametrize("host", ["metrics..example", "a" * 64 + ".example", "a\0b"])
@pytest.mark.parametrize("use_udp", [False, True], ids=["tcp", "udp"])
async def test_a_name_that_can_be_no_host_is_no_failure(host: str, use_udp: bool) -> None:
    reporter = GraphiteReporter(registry(), GraphiteSettings(host, 2003, use_udp=use_udp))
    assert not await reporter.report()


async def test_run_reports_every_interval_and_is_off_without_a_host() -> None:
    reports: list[int] = []

    class Counting(GraphiteReporter):
        async def report(self) -> bool:
            reports.append(1)
            return True

    await Counting(registry(), GraphiteSettings()).run()
    running = asyncio.get_running_loop().create_task(
        Counting(registry(), GraphiteSettings("127.0.0.1", 1, interval_seconds=0.001)).run()
    )
    async with asyncio.timeout(5):
        while len(reports) < 3:
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait([running])
