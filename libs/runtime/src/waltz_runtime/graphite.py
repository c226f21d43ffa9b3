"""Reports metrics to Graphite: the plaintext protocol over TCP (a connection per report) or UDP.

Off unless a host name is configured. The key whose name means milliseconds counts seconds, as in release
0.13.2. A Graphite that does not answer costs one log line per outage and never disturbs the service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.slices import between_turns

_DATAGRAM_BYTES = 1400  # fits an Ethernet frame with headers
_DATAGRAMS_PER_TURN = 16
_WRITE_TIMEOUT_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GraphiteSettings:
    """`<role>.graphite.hostname/port/prefix/reportIntervalMs/useUdp`; no host name means off."""

    hostname: str | None = None
    port: int = 2003
    prefix: str = "waltz"
    interval_seconds: float = 60.0
    use_udp: bool = False


class GraphiteReporter:
    """Sends every metric that is a number, once per interval. Owner: the task that awaits `run`."""

    def __init__(
        self,
        registry: MetricsRegistry,
        settings: GraphiteSettings,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._wall_clock = wall_clock
        self._failing = False

    async def run(self) -> None:
        """Report until cancelled; returns at once when no host is configured."""
        while self._settings.hostname:
            await asyncio.sleep(self._settings.interval_seconds)
            await self.report()

    async def report(self) -> bool:
        """Send one report; False when Graphite could not be reached."""
        slices = self._registry.graphite_slices(self._settings.prefix, int(self._wall_clock()))
        text = await between_turns(slices)
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                await (self._send_udp(text) if self._settings.use_udp else self._send_tcp(text))
        except (OSError, ValueError) as failure:  # the timeout, and what can be no host, are among them
            if not self._failing:
                log.warning("graphite does not answer", reason=str(failure) or type(failure).__name__)
            self._failing = True
            return False
        self._failing = False
        return True

    async def _send_tcp(self, text: str) -> None:
        _, writer = await asyncio.open_connection(self._settings.hostname, self._settings.port)
        try:
            writer.write(text.encode())
            await writer.drain()
        finally:
            writer.close()
        await writer.wait_closed()

    async def _send_udp(self, text: str) -> None:
        host, port = self._settings.hostname, self._settings.port
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(host or "", port)
        )
        try:
            for number, datagram in enumerate(_datagrams(text), 1):
                transport.sendto(datagram)
                if number % _DATAGRAMS_PER_TURN == 0:
                    await asyncio.sleep(0)
        finally:
            transport.close()


def _datagrams(text: str) -> Iterator[bytes]:
    """Whole lines packed into datagrams."""
    pending = b""
    for line in text.split("\n")[:-1]:
        encoded = f"{line}\n".encode()
        if pending and len(pending) + len(encoded) > _DATAGRAM_BYTES:
            yield pending
            pending = b""
        pending += encoded
    if pending:
        yield pending
