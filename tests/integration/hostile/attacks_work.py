"""Little to send, much to do: well-formed requests that would cost the attacked process seconds, or memory
for each one of many."""

import asyncio
import struct
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.integration.hostile.wires import Target, Wire, abort_all, careless_tls, crowd, wire
from waltz_protocol.buffer import MAX_LIST_INTEGERS
from waltz_protocol.codec import ADMIN, CLIENT
from waltz_protocol.frames.append import MAX_LOCKS, encode_append
from waltz_protocol.messages import admin, client
from waltz_protocol.types import ReqId

_CUT = (OSError, IncompleteReadError)
_CLIENT_ID = 67
CROWD = 2000
HALF_BYTES = 60_000
FLOODS = 4
LEAST_ANSWERS = 10
_LONG_SECONDS = 60.0


async def many_locks(target: Target) -> None:
    """Appends with 15 million locks, two million, and as many as are taken; the connection keeps being
    served."""
    async with wire(target) as made:
        asking = _Asking(target, made)
        await asking.mounted()
        for count in (15_000_000, 2_000_000):
            body = struct.pack(">b", 2) + asking.req_id().pack() + struct.pack(">qi", asking.mark, count)
            await made.send(
                target.frame(body + bytes(4 * count) + struct.pack(">iiii", 0, 0, 0, 0) + bytes(4))
            )
            await asking.mark_now()
        for number in range(4):
            locks = range(number * MAX_LOCKS, (number + 1) * MAX_LOCKS)
            locks_of_it = [lock - (1 << 31) for lock in locks]
            # of a generation that is over: every lock is looked up, and then it is dropped
            old = asking.req_id()._replace(generation=0).pack()
            await made.send(encode_append(old, asking.mark, locks_of_it, (), (), 0, b"", target.version))
        await asking.flushed()


async def many_flags(target: Target) -> None:
    """An administrator whose list names one partition a hundred thousand times, and one with fifteen million
    names."""
    async with wire(target, opened=True) as made:
        for available in (False, True):
            ids = (0,) * MAX_LIST_INTEGERS
            await made.send(ADMIN.encode(admin.PartitionAvailableRequest(1, ids, available), 0))
            assert ADMIN.decode(await made.frame(), 0) == admin.SuccessResponse(1)
    async with wire(target, opened=True) as made:
        body = struct.pack(">bqi", admin.PartitionAvailableRequest.TYPE, 1, 15_000_000)
        with suppress(*_CUT):
            await made.send(target.frame(body + bytes(60_000_000) + b"\1"))
        assert await made.is_cut()


async def many_preferences(target: Target) -> None:
    """Fifteen million partitions that a server is to prefer."""
    async with wire(target) as made:
        body = struct.pack(">b", client.AddPreferredPartitionRequest.TYPE) + bytes(16)
        with suppress(*_CUT):
            await made.send(target.frame(body + struct.pack(">i", 15_000_000) + bytes(60_000_000)))
        assert await made.is_cut()


async def half_small_frames(target: Target) -> None:
    """2,000 connections with 60 KB each of a frame that never ends."""
    half = target.frame(b"\2" + bytes(HALF_BYTES), HALF_BYTES + 1000)

    async def one() -> Wire:
        made = await Wire.open(target, careless_tls(target))
        await made.greet(target)
        await made.send(half)
        return made

    wires = await crowd(CROWD, one)
    await asyncio.sleep(target.seconds)
    abort_all(wires)


async def flood_of_questions(target: Target) -> None:
    """Four connections that ask for marks as fast as they can, and read the answers: a fifth one gets its own
    in between."""
    question = CLIENT.encode(client.HighWaterMarkRequest(ReqId(_CLIENT_ID, 0, 0, 1)), target.version)
    await _flood(target, question)


async def flood_of_lists(target: Target) -> None:
    """The same for the health of all partitions."""
    question = CLIENT.encode(
        client.ServerPartitionsHealthStatRequest(ReqId(_CLIENT_ID, 0, 0, 1)), target.version
    )
    await _flood(target, question)


async def flood_of_mounts(target: Target) -> None:
    """The same for mounts."""
    mount = client.MountRequest(ReqId(_CLIENT_ID, 0, 0, 1), -1, 0)
    await _flood(target, CLIENT.encode(mount, target.version))


async def _flood(target: Target, question: bytes) -> None:
    async with _flooding(target, question * (1 << 18 >> 5)):
        await _answers_meanwhile(target)


@asynccontextmanager
async def _flooding(target: Target, chunk: bytes) -> AsyncIterator[None]:
    """Connections that send `chunk` on and on, and read what they are answered."""
    async with asyncio.TaskGroup() as tasks:
        floods = [tasks.create_task(_ask_on(target, chunk)) for _ in range(FLOODS)]
        try:
            yield
        finally:
            for flood in floods:
                flood.cancel()


async def _ask_on(target: Target, chunk: bytes) -> None:
    """One that is cut is followed by another one, until the task is cancelled: of a cut and a cancellation at
    once TaskGroup raises the cut alone (Python 3.11)."""
    task = asyncio.current_task()
    assert task is not None
    while not task.cancelling():
        try:
            async with wire(target, opened=True) as made, asyncio.TaskGroup() as tasks:
                tasks.create_task(_read_on(made))
                while True:
                    await made.send(chunk)
        except* (OSError, IncompleteReadError):
            pass


async def _read_on(made: Wire) -> None:
    while await made.reader.read(1 << 18):
        pass


async def _answers_meanwhile(target: Target) -> None:
    """A peer that asks one question after another gets its answers, however long each takes on a busy
    machine; without an end `mark_now` raises TimeoutError."""
    now = asyncio.get_running_loop().time
    async with wire(target) as made:
        asking, answered, until = _Asking(target, made), 0, now() + 2 * target.seconds
        while answered < LEAST_ANSWERS or (answered < 10 * LEAST_ANSWERS and now() < until):
            await asking.mark_now()
            answered += 1


async def flood_of_administration(target: Target) -> None:
    """Questions for metrics and states, hundreds in one packet; a second administrator is answered in
    between."""
    asked = ADMIN.encode(admin.MetricsRequest(1), 0) + ADMIN.encode(
        admin.AssignedPartitionStatusRequest(2), 0
    )
    async with _flooding(target, asked * 500), wire(target, opened=True) as made:
        for number in range(LEAST_ANSWERS):
            await made.send(ADMIN.encode(admin.AssignedPartitionStatusRequest(number), 0))
            await made.frame()


async def pipelined_http(target: Target) -> None:
    """Connections that ask for health hundreds of times in one packet, without waiting for an answer."""
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 500

    async def one() -> Wire:
        made = await Wire.open(target, None)
        made.writer.write(request)
        return made

    wires = await crowd(50, one)
    for made in wires[:5]:
        with suppress(*_CUT, TimeoutError):
            async with asyncio.timeout(target.seconds):
                await made.reader.readuntil(b"HTTP/1.1 200")
    abort_all(wires)


class _Asking:
    """A client of partition 0 on one connection."""

    def __init__(self, target: Target, made: Wire) -> None:
        self._target, self._made = target, made
        self._seq_num = 0
        self._generation = 0
        self.mark = -1

    def req_id(self) -> ReqId:
        self._seq_num += 1
        return ReqId(_CLIENT_ID, self._generation, 0, self._seq_num)

    async def _ask(self, message: object, kind: type) -> object:
        await self._made.send(CLIENT.encode(message, self._target.version))  # type: ignore[arg-type]
        while True:
            answer = CLIENT.decode(await self._made.frame(_LONG_SECONDS), self._target.version)
            if isinstance(answer, kind):
                return answer

    async def mark_now(self) -> int:
        """The server's high-water mark."""
        answer = await self._ask(client.HighWaterMarkRequest(self.req_id()), client.HighWaterMarkResponse)
        assert isinstance(answer, client.HighWaterMarkResponse)
        self.mark = answer.transaction_id
        return self.mark

    async def mounted(self) -> None:
        """At the end of the log."""
        await self.mark_now()
        self._generation = (
            1  # the first one of a cluster; of another one the appends are dropped when it is their turn
        )
        answer = await self._ask(client.MountRequest(self.req_id(), self.mark, 0), client.MountResponse)
        assert isinstance(answer, client.MountResponse)
        assert answer.state == client.MountState.READY, answer

    async def flushed(self) -> None:
        """All that was sent is decided."""
        await self._ask(client.FlushRequest(self.req_id()), client.FlushResponse)
