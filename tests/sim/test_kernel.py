"""The simulated machine itself: time, processes, connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.kernel.loop import SimLoop, StuckError
from tests.sim.kernel.process import Process
from tests.sim.kernel.transport import WINDOW_BYTES
from waltz_protocol import frame as frames
from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.listener import Listener
from waltz_protocol.errors import ConnectError
from waltz_protocol.frame import Magic
from waltz_protocol.types import Endpoint

PORT = 7000
SETTINGS = ChannelSettings(
    magic=Magic.STORAGE,
    versions=(0,),
    hello_text="test",
    tcp_user_timeout_ms=5_000,
    keep_alive_seconds=1.0,
    write_high_bytes=256 * 1024,
    write_low_bytes=64 * 1024,
)
Main = Callable[[], Coroutine[Any, Any, None]]


class Peer:
    """A handler that notes what it hears; frames are echoed when asked to."""

    def __init__(self, *, echo: bool = False) -> None:
        self.echo = echo
        self.frames: list[bytes] = []
        self.closed: list[str] = []

    def channel_ready(self, channel: Channel) -> None: ...

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        self.frames.append(bytes(body))
        if self.echo:
            channel.send(frame(bytes(body)))

    def frames_ended(self, channel: Channel) -> None: ...

    def writable_changed(self, channel: Channel, writable: bool) -> None: ...

    def channel_closed(self, channel: Channel, reason: str) -> None:
        self.closed.append(reason)


def frame(body: bytes) -> bytes:
    return frames.frame(Magic.STORAGE, 0, body)


class Pair:
    """A listening process "server" and a connecting one "client", each on a host of its own."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.accepted = Peer(echo=True)
        self.connected = Peer()
        self.channel: Channel | None = None
        self.failure: ConnectError | None = None

    async def serve(self) -> None:
        async with Listener() as listener:
            await listener.start("ignored", PORT, SETTINGS, lambda: self.accepted, None)
            await asyncio.Event().wait()

    async def use(self) -> None:
        try:
            self.channel = await connect(Endpoint("server", PORT), SETTINGS, self.connected, None)
        except ConnectError as error:
            self.failure = error
            return
        await asyncio.Event().wait()

    def start(self) -> tuple[Process, Process]:
        server = self.loop.spawn_process("server", self.loop.host("server"), self.serve)
        client = self.loop.spawn_process("client", self.loop.host("client"), self.use)
        return server, client


def run(seed: int, main: Callable[[SimLoop, Pair], Coroutine[Any, Any, None]]) -> SimLoop:
    loop = SimLoop(seed)

    async def whole() -> None:
        await main(loop, Pair(loop))

    loop.run(whole())
    assert not loop.errors
    return loop


def test_frames_go_there_and_back_in_order_and_time_is_virtual() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        pair.start()
        await asyncio.sleep(3600)
        assert pair.channel is not None
        for number in range(100):
            pair.channel.send(frame(number.to_bytes(4, "big") * 500))
        await asyncio.sleep(1)
        assert pair.connected.frames == [number.to_bytes(4, "big") * 500 for number in range(100)]

    first, again, other = run(1, main), run(1, main), run(2, main)
    assert first.trace.digest() == again.trace.digest() != other.trace.digest()


def test_nobody_listens() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        loop.spawn_process("client", loop.host("client"), pair.use)
        await asyncio.sleep(1)
        assert pair.failure is not None
        assert "refused" in str(pair.failure)

    run(1, main)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_runs_nothing_and_its_peer_hears_of_it(seed: int) -> None:
    ran: list[str] = []

    async def main(loop: SimLoop, pair: Pair) -> None:
        async def with_finally() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ran.append("finally")

        server, _ = pair.start()
        doomed = loop.spawn_process("doomed", loop.host("server"), with_finally)
        await asyncio.sleep(1)
        doomed.kill()
        server.kill()
        await asyncio.sleep(1)
        assert len(pair.connected.closed) == 1
        assert not pair.accepted.closed
        assert not ran

    run(seed, main)


def test_after_a_power_cut_only_unanswered_bytes_tell_the_peer() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        pair.start()
        await asyncio.sleep(0.5)
        loop.host("server").power_off()
        await asyncio.sleep(4)
        assert not pair.connected.closed
        await asyncio.sleep(4)  # keep-alives since 1 s, the user timeout is 5 s
        assert len(pair.connected.closed) == 1

    run(1, main)


def test_a_blocked_link_holds_bytes_back_and_gives_them_in_order() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        pair.start()
        await asyncio.sleep(0.5)
        loop.network.block("client", "server")
        assert pair.channel is not None
        pair.channel.send(frame(b"one"))
        await asyncio.sleep(1)
        pair.channel.send(frame(b"two"))
        await asyncio.sleep(1)
        assert not pair.accepted.frames
        loop.network.unblock("client", "server")
        await asyncio.sleep(1)
        assert pair.accepted.frames == [b"one", b"two"]
        assert not pair.connected.closed

    run(1, main)


def test_blocked_acknowledgements_end_the_connection_on_one_side_only() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        pair.start()
        await asyncio.sleep(0.5)
        loop.network.block("server", "client")
        await asyncio.sleep(7)
        assert len(pair.connected.closed) == 1  # its keep-alives were not acknowledged
        assert len(pair.accepted.frames) == 0

    run(1, main)


def test_a_paused_process_fills_the_window_and_then_its_peers_buffer() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        server, _ = pair.start()
        await asyncio.sleep(0.5)
        server.pause()
        assert pair.channel is not None
        size = 64 * 1024
        for _ in range(16):
            pair.channel.send(frame(bytes(size)))
        await asyncio.sleep(1)
        assert pair.channel.pending_bytes >= 16 * size - WINDOW_BYTES
        assert not pair.channel.writable
        server.resume()
        await asyncio.sleep(1)
        assert len(pair.accepted.frames) == 16
        assert pair.channel.pending_bytes == 0

    run(1, main)


def test_a_cut_inside_a_frame_resets_both_sides() -> None:
    async def main(loop: SimLoop, pair: Pair) -> None:
        pair.start()
        await asyncio.sleep(0.5)
        loop.network.cut_inside_next_frame("client", "server")
        assert pair.channel is not None
        pair.channel.send(frame(bytes(1000)))
        await asyncio.sleep(1)
        assert not pair.accepted.frames
        assert len(pair.accepted.closed) == len(pair.connected.closed) == 1

    run(1, main)


def test_a_world_without_timers_is_stuck() -> None:
    loop = SimLoop(1)
    with pytest.raises(StuckError):
        loop.run(asyncio.Event().wait())


def test_a_task_that_is_woken_while_its_process_is_paused_is_buried_with_it() -> None:
    """The handle that was to wake it is the only thing that refers to it."""
    loop = SimLoop(1)
    woken: list[str] = []
    stop: list[asyncio.Event] = []

    async def waiting() -> None:
        stop.append(asyncio.Event())
        await stop[0].wait()
        woken.append("woken")

    async def main() -> None:
        process = loop.spawn_process("node-1", loop.host("node-1"), waiting)
        await asyncio.sleep(1.0)
        process.pause()
        stop.pop().set()
        await asyncio.sleep(1.0)
        process.kill()

    loop.run(main())
    assert (loop.errors, woken) == ([], [])
