"""Turns of the loop are bounded and fair, whatever peers send and however many they are. Counted, never
timed."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol_tests.peers import HOST, RawPeer, Recorder, listening, raw_peer, settings
from waltz_protocol.aio.channel import MAX_WRITE_BYTES, Channel
from waltz_protocol.aio.incoming import BUSY_READ_BYTES, FRAME_UNITS
from waltz_protocol.aio.listener import Listener
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context
from waltz_protocol.aio.turns import ARRIVED, QUEUED, SLICE_UNITS, TURN_UNITS, Turns
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import MAX_READ_BYTES, frame, keep_alive_frame

A_FRAME = frame(CLIENT.magic, 4, b"x")


class Worker:
    """Has so many units of work; notes each slice."""

    def __init__(self, turns: Turns, name: str, units: int, seen: list[str], line: int = ARRIVED) -> None:
        self.turns, self.name, self.units, self.seen, self.line = turns, name, units, seen, line
        turns.join(self, line)

    def work(self, units: int) -> int:
        done = min(units, self.units)
        self.units -= done
        self.seen.append(self.name)
        if self.units:
            self.turns.join(self, self.line)
        return done


async def test_workers_take_turns_and_a_turn_is_bounded() -> None:
    turns, seen = Turns(turn_units=100, slice_units=25), list[str]()
    for name in "abc":
        Worker(turns, name, 60, seen)
    by_turn = []
    while len(seen) < 9:
        before = len(seen)
        await asyncio.sleep(0)
        by_turn.append(len(seen) - before)
        assert len(by_turn) < 20
    assert "".join(seen) == "abcabcabc"
    assert [count for count in by_turn if count] == [4, 5]  # of 25 units each; of 25, 25, 10, 10, 10


async def test_partitions_and_connections_have_half_of_a_turn_each() -> None:
    turns, seen = Turns(turn_units=100, slice_units=10), list[str]()
    for _ in range(20):
        Worker(turns, "c", 50, seen)
    Worker(turns, "p", 40, seen, QUEUED)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "".join(seen[:10]).count("p") == 4


async def test_a_worker_that_fails_does_not_stop_the_line() -> None:
    class Failing(Worker):
        def work(self, units: int) -> int:
            raise ZeroDivisionError

    turns, seen = Turns(), list[str]()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: errors.append(context["exception"])
    )
    Failing(turns, "bad", 1, seen)
    Worker(turns, "good", 1, seen)
    for _ in range(4):
        await asyncio.sleep(0)
    assert seen == ["good"]
    assert len(errors) == 1


async def test_little_work_costs_no_turn_of_its_own() -> None:
    """What an idle process does is added up: one callback for many small reads, not one for each."""
    turns = Turns()
    for _ in range(TURN_UNITS // 20):
        turns.spend(10)
    scheduled = [turns._scheduled]
    turns.spend(10)
    scheduled.append(turns._scheduled)
    assert scheduled == [False, True]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns.left == TURN_UNITS
    assert turns.free
    assert turns.free_for_queued


class Turn:
    """The number of the present turn of the loop."""

    def __init__(self) -> None:
        self.number = 0
        self._handle: asyncio.Handle | None = None
        self._next()

    def _next(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


async def test_frames_of_a_flood_are_handed_over_in_turns_and_in_order() -> None:
    """Three peers send 20,000 tiny frames each, in one piece; a fourth sends one: it is not last."""
    turn = Turn()
    log: list[tuple[int, int, int]] = []  # turn, peer, number
    count, recorders = 20_000, list[Recorder]()

    def handler() -> Recorder:
        number = len(recorders)

        def on_frame(channel: Channel, body: bytes) -> None:
            log.append((turn.number, number, int.from_bytes(body, "big")))

        recorders.append(Recorder(on_frame))
        return recorders[-1]

    async with Listener() as listener:
        await listener.start(HOST, 0, settings(), handler, None)
        peers = [await RawPeer.to(listener.port) for _ in range(4)]
        for number, peer in enumerate(peers):
            peer.hello()
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                while len(recorders) <= number or recorders[number].channel is None:
                    await asyncio.sleep(0.001)
        flood = b"".join(frame(CLIENT.magic, 4, n.to_bytes(4, "big")) for n in range(count))
        for peer in peers[:3]:
            peer.say(flood)
        peers[3].say(frame(CLIENT.magic, 4, bytes(4)))
        async with asyncio.timeout(60):
            while len(log) < 3 * count + 1:
                await asyncio.sleep(0.01)
        for peer in peers:
            await peer.close()
    turn.stop()
    for peer_number in range(3):
        assert [n for _, who, n in log if who == peer_number] == list(range(count))
    by_turn: dict[int, int] = {}
    for number, _, _ in log:
        by_turn[number] = by_turn.get(number, 0) + 1
    # what arrives in a turn that is not full yet, and then the line, may be one turn's worth each
    assert max(by_turn.values()) <= 2 * TURN_UNITS // FRAME_UNITS + SLICE_UNITS // FRAME_UNITS
    assert next(place for place, (_, who, _) in enumerate(log) if who == 3) < 2 * count


async def test_a_flood_in_line_waits_in_the_kernel() -> None:
    """Of each connection in line a little is in memory, not what its peer has sent."""
    turns = Turns()
    hold = Worker(turns, "somebody else", 10**9, [])
    async with Listener(None, turns) as listener:
        recorder = Recorder()
        await listener.start(HOST, 0, settings(), lambda: recorder, None)
        peer = await RawPeer.to(listener.port)
        peer.hello()
        peer.say(A_FRAME * 100_000)
        await recorder.until(lambda: len(recorder.bodies) > 1000)
        (channel,) = listener.channels
        assert channel._splitter.buffered_bytes <= BUSY_READ_BYTES
        hold.units = 1
        await recorder.until(lambda: len(recorder.bodies) == 100_000, 60)
        await peer.close()


async def test_keep_alives_use_up_a_turn_too() -> None:
    turns = Turns()
    least = TURN_UNITS
    spend = turns.spend

    def spent(units: int) -> None:
        nonlocal least
        spend(units)
        least = min(least, turns.left)

    turns.spend = spent  # type: ignore[method-assign]
    async with Listener(None, turns) as listener:
        recorder = Recorder()
        await listener.start(HOST, 0, settings(), lambda: recorder, None)
        peer = await RawPeer.to(listener.port)
        peer.hello()
        peer.say(keep_alive_frame(CLIENT.magic, 4) * 200_000 + A_FRAME)
        await recorder.until(lambda: bool(recorder.bodies), 60)
        assert least < TURN_UNITS - MAX_READ_BYTES // 100
        await peer.close()


async def test_a_handler_that_pauses_gets_no_more_frames_until_it_resumes() -> None:
    def on_frame(channel: Channel, body: bytes) -> None:
        if len(server.bodies) % 10 == 0:
            channel.pause_reading()

    server = Recorder(on_frame)
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(b"".join(frame(CLIENT.magic, 4, bytes((n,))) for n in range(1, 36)))
        for step in (10, 20, 30):
            await server.until(lambda step=step: len(server.bodies) == step)  # type: ignore[misc]
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(server.bodies) == step
            assert server.channel is not None
            server.channel.resume_reading()
        await server.until(lambda: len(server.bodies) == 35)
        assert server.bodies == [bytes((n,)) for n in range(1, 36)]


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("pieces", [1, 7])
async def test_what_was_sent_before_an_orderly_end_counts(pieces: int, encrypted: bool) -> None:
    """Also when the connection was in line at that moment: with TLS its end is seen although it is not read
    from."""
    server_tls = server_context(TlsSettings()) if encrypted else None
    client_tls = client_context(TlsSettings(allow_unverified=True)) if encrypted else None
    turns = Turns()
    async with Listener(None, turns) as listener:
        recorder = Recorder()
        await listener.start(HOST, 0, settings(), lambda: recorder, server_tls)
        reader, writer = await asyncio.open_connection(HOST, listener.port, ssl=client_tls)
        peer = RawPeer(reader, writer)
        peer.hello()
        await recorder.until(lambda: recorder.channel is not None)
        Worker(turns, "somebody else", 10**8, [])
        sent = A_FRAME * 200  # what is read at once while others are in line
        for start in range(0, len(sent), len(sent) // pieces):
            peer.say(sent[start : start + len(sent) // pieces])
            await asyncio.sleep(0)
        await peer.close()
        await recorder.until_closed()
    assert len(recorder.bodies) == 200


async def test_batches_end_with_each_slice() -> None:
    batches = Recorder()
    async with listening(lambda: batches) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(A_FRAME * 30_000)
        await batches.until(lambda: len(batches.bodies) == 30_000, 60)
        await batches.until(lambda: batches.batches[-1:] == [30_000])
    sizes = [after - before for before, after in itertools.pairwise([0, *batches.batches])]
    assert min(sizes) > 0
    assert max(sizes) <= TURN_UNITS // FRAME_UNITS + 1


class Stepping(Recorder):
    """Handles each frame in as many steps as its first byte says."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns, self.steps = turns, list[tuple[int, int]]()
        self.done: list[bytes] = []

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:  # type: ignore[override]
        super().frame_received(channel, body)
        return self._handle(bytes(body)) if body[0] else None

    def _handle(self, body: bytes) -> Iterator[int]:
        for number in range(body[0]):
            self.steps.append((body[1], number))
            yield 100
        self.done.append(body)


@pytest.mark.parametrize("turn_units", [50, 250, 100_000])
async def test_a_frame_that_is_much_work_is_handled_in_steps_before_the_next_one(turn_units: int) -> None:
    turns = Turns(turn_units, turn_units)
    recorder = Stepping(turns)
    bodies = [bytes((steps, number)) for number, steps in enumerate((3, 0, 7, 1, 0, 0, 2))]
    async with Listener(None, turns) as listener:
        await listener.start(HOST, 0, settings(), lambda: recorder, None)
        peer = await RawPeer.to(listener.port)
        peer.hello()
        peer.say(b"".join(frame(CLIENT.magic, 4, body) for body in bodies))
        await recorder.until(lambda: len(recorder.bodies) == len(bodies) and len(recorder.done) == 4)
        assert recorder.bodies == bodies
        assert recorder.steps == [(body[1], number) for body in bodies for number in range(body[0])]
        assert recorder.done == [body for body in bodies if body[0]]
        await peer.close()


async def test_steps_that_fail_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Recorder):
        def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int]:  # type: ignore[override]
            super().frame_received(channel, body)
            return self._handle()

        def _handle(self) -> Iterator[int]:
            yield TURN_UNITS
            raise ProtocolError("bad in its midst")

    recorder = Failing()
    async with listening(lambda: recorder) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(A_FRAME * 2)
        assert await recorder.until_closed() == "bad in its midst"
    assert len(recorder.bodies) == 1
    assert "bad in its midst" in caplog.text


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Recorder, Channel, RawPeer, list[int]]]:
    """A server's end of a connection, its channel, its peer after the Hello, and what each write took."""
    written: list[int] = []
    server = Recorder()
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        await server.until(lambda: server.channel is not None)
        channel = server.channel
        assert channel is not None
        transport = channel._transport
        assert transport is not None
        await peer.frame()  # the Hello

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                written.append(len(data))
                transport.write(data)  # type: ignore[union-attr]

        channel._transport = Watched()  # type: ignore[assignment]
        yield server, channel, peer, written
        channel._transport = transport


async def test_a_large_message_is_written_in_pieces_and_in_order() -> None:
    """A frame of many MiB, and what is sent behind it: no turn writes more than a MiB."""
    async with watched() as (server, channel, peer, written):
        large = bytes(range(256)) * (5 << 12) + b"end"
        channel.send(frame(CLIENT.magic, 4, large))
        channel.send(frame(CLIENT.magic, 4, b"behind"))
        assert not channel.writable
        assert channel.pending_bytes > 4 << 20
        assert await peer.frame() == frame(CLIENT.magic, 4, large)
        assert await peer.frame() == frame(CLIENT.magic, 4, b"behind")
        await server.until(lambda: channel.writable)
        assert max(written) == MAX_WRITE_BYTES
        assert channel.pending_bytes == 0
        assert server.writable[:1] == [False]


async def test_a_full_transport_gets_nothing_before_it_has_space_again() -> None:
    """It would encrypt and keep what its peer may never take."""
    async with watched() as (server, channel, peer, written):
        channel.pause_writing()
        sent = [frame(CLIENT.magic, 4, bytes([number]) * 100_000) for number in range(30)]
        for one in sent:
            channel.send(one)
            await asyncio.sleep(0)
        assert not written
        assert channel.pending_bytes >= sum(map(len, sent))
        channel.resume_writing()
        assert [await peer.frame() for _ in sent] == sent
        await server.until(lambda: channel.writable)
        assert max(written) <= MAX_WRITE_BYTES
