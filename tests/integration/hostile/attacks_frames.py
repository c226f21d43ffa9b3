"""Bytes that are no frames, frames that are no messages, messages that make no sense, and good ones out of
place."""

import asyncio
import random
import re
import struct
from asyncio import IncompleteReadError
from uuid import UUID

from tests.integration.hostile.wires import Target, wire
from waltz_protocol.codec import ADMIN, CLIENT, STORAGE
from waltz_protocol.handshake import encode_hello
from waltz_protocol.messages import admin, client, storage
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId, data_checksum

_WRONG_KEY = UUID("00000000-dead-4bad-8bad-000000000000")
_HUGE_SESSION = 1 << 60
_NO_FRAME = b"\xff" * 7
"""Ends every connection that an attack has not ended before."""
_CUT = (OSError, IncompleteReadError)


async def garbage(target: Target) -> None:
    """Random bytes instead of a Hello, and after one."""
    rng = random.Random(1)
    for greeted in (False, True):
        for _ in range(10):
            try:
                async with wire(target, greeted=greeted) as made:
                    await made.send(rng.randbytes(2000))
                    await made.is_cut()
            except _CUT:
                pass


async def malformed(target: Target) -> None:
    """Frames with wrong magic, version, length, type, counts and lengths inside, and bytes left over."""
    waiting = _malformed(target)

    async def work() -> None:
        while waiting:
            raw = waiting.pop()
            try:
                async with wire(target, opened=True) as made:
                    await made.send(raw + _NO_FRAME)
                    assert await made.is_cut(), raw[:40]
            except _CUT:
                pass

    await asyncio.gather(*(work() for _ in range(5)))


def _malformed(target: Target) -> list[bytes]:
    prefix = bytes(20)
    minus, huge = struct.pack(">i", -1), struct.pack(">i", (1 << 31) - 1)
    frames = [
        b"\x00" + target.frame(b"x")[1:],
        target.frame(b"x")[:1] + b"\x7f\xff" + target.frame(b"x")[3:],
        target.frame(b"", -1),
        target.frame(b"", -(1 << 31)),
        target.frame(b"", (1 << 31) - 1),
        target.frame(b"", (64 << 20) + 1),
        encode_hello((0, 1, 2), "again"),
    ]
    for kind in (-128, -1, *range(40), 127):
        code = struct.pack(">b", kind)
        frames += [
            target.frame(code),
            target.frame(code + prefix),
            target.frame(code + prefix + minus * 8),
            target.frame(code + prefix + huge * 8),
            target.frame(code + prefix + huge + bytes(200)),
        ]
    return frames


async def truncated(target: Target) -> None:
    """A whole conversation, ended after each of its first bytes."""
    full = encode_hello((0, 1, 2, 3, 4), "cut")
    if target.kind != "client":
        full += target.opening()
    full += target.frame(bytes(40))
    for end in range(0, len(full), 7):
        async with wire(target, greeted=False) as made:
            await made.send(full[:end])


async def oversized(target: Target) -> None:
    """Hellos and frames that claim and send more than anybody may."""
    for greeted in (False, True):
        for _ in range(5):
            try:
                async with wire(target, greeted=greeted) as made:
                    await made.send(target.frame(b"", 1 << 30) + bytes(1 << 20))
                    await made.is_cut()
            except _CUT:
                pass
    big = struct.pack(">bhii", 0x48, 0, 60_000, 29_000) + bytes(59_996)
    for _ in range(5):
        try:
            async with wire(target, greeted=False) as made:
                await made.send(big)
                await made.is_cut()
        except _CUT:
            pass


async def stranger_sessions(target: Target) -> None:
    """Every request with a huge session id, without Open, and after one with a wrong cluster key: must not
    raise a fence."""
    sessions = [await running_session(target, partition) for partition in range(target.partitions)]
    for opened_wrongly in (False, True):
        async with wire(target) as made:
            if opened_wrongly:
                await made.send(target.opening(_WRONG_KEY))
                answer = STORAGE.decode(await made.frame(), target.version)
                assert isinstance(answer, storage.FailureResponse), answer
                assert target.cluster_key not in str(answer), "a stranger was given the cluster key"
            for number, request in enumerate(_session_requests(target)):
                await made.send(STORAGE.encode(request, target.version))
                answer = STORAGE.decode(await made.frame(), target.version)
                assert isinstance(answer, storage.FailureResponse), (number, answer)
    assert [await running_session(target, partition) for partition in range(target.partitions)] == sessions


def _session_requests(target: Target, session_id: int = _HUGE_SESSION) -> list[Message]:
    found: list[Message] = []
    for partition in (*range(target.partitions), -1, 1 << 30):
        ids = (session_id, 1, partition)
        found += [
            storage.LastSessionInfoRequest(*ids, False),
            storage.SetLowWaterMarkRequest(*ids, 1 << 40, False),
            storage.TruncateRequest(*ids, -1, False),
            storage.TruncateRequest(*ids, -1, True),
            storage.AppendRequest(*ids, (), False),
            storage.RecordRequest(*ids, 0),
            storage.RecordHeaderRequest(*ids, 0),
            storage.MaxTransactionIdRequest(*ids, False),
            storage.RecordListRequest(*ids, 0, 1 << 30),
            storage.StoredRangeRequest(*ids, 0, 100, 100, 1 << 20, storage.UNRESOLVED),
            storage.StoredAppendRequest(*ids, 1 << 40, 0, 0, b""),
            storage.RecordHeaderListRequest(*ids, 0, 1 << 30),
        ]
    return found


async def stranger_administration(target: Target) -> None:
    """Requests that would take partitions away, without Open and after one with a wrong cluster key."""
    partitions = tuple(range(target.partitions))
    requests: list[Message] = [
        admin.PartitionAssignmentRequest(1, partitions, False, True),
        admin.PartitionAvailableRequest(2, partitions, False),
        admin.RecordListRequest(3, 0, 0, 100),
        admin.LastSessionInfoRequest(4, 0),
        admin.MetricsRequest(5),
        admin.AssignedPartitionStatusRequest(6),
    ]
    for opened_wrongly in (False, True):
        async with wire(target) as made:
            if opened_wrongly:
                await made.send(target.opening(_WRONG_KEY))
                await made.frame()
            for request in requests:
                await made.send(ADMIN.encode(request, 0))
                answer = ADMIN.decode(await made.frame(), 0)
                assert isinstance(answer, admin.FailureResponse), answer


async def running_session(target: Target, partition: int) -> int:
    """The session that owns a partition: a request of session -1 is refused with its number."""
    async with wire(target, opened=True) as made:
        await made.send(
            STORAGE.encode(storage.MaxTransactionIdRequest(-1, 1, partition, False), target.version)
        )
        answer = STORAGE.decode(await made.frame(), target.version)
    assert isinstance(answer, storage.FailureResponse), answer
    found = re.search(r"takes session (\d+)", answer.error.message or "")
    assert found is not None, answer
    return int(found[1])


async def replayed(target: Target) -> None:
    """What an old server once said, again and in the wrong order, by somebody who knows the cluster key."""
    for partition in range(target.partitions):
        ids = (await running_session(target, partition) - 1, 1, partition)
        old: list[Message] = [
            storage.AppendRequest(*ids, (), False),
            storage.TruncateRequest(*ids, -1, False),
            storage.SetLowWaterMarkRequest(*ids, -1, False),
            storage.TruncateRequest(*ids, -1, True),
            storage.LastSessionInfoRequest(*ids, False),
        ]
        for requests in (old, old[::-1]):
            async with wire(target, opened=True) as made:
                for request in requests * 3:
                    await made.send(STORAGE.encode(request, target.version))
                    answer = STORAGE.decode(await made.frame(), target.version)
                    assert isinstance(answer, storage.FailureResponse), answer


async def highest_fence(target: Target) -> None:
    """Sessions that no cluster ever comes to, by somebody who knows the cluster key: reads, and all that
    changes something."""
    before = [await running_session(target, partition) for partition in range(target.partitions)]
    for session_id in (2**63 - 1, 2**62, 2**48, max(before) + 2**33):
        async with wire(target, opened=True) as made:
            for request in _session_requests(target, session_id):
                await made.send(STORAGE.encode(request, target.version))
                answer = STORAGE.decode(await made.frame(), target.version)
                assert isinstance(answer, storage.FailureResponse), answer
    assert [await running_session(target, partition) for partition in range(target.partitions)] == before


async def replayed_by_client(target: Target) -> None:
    """Appends, flushes and feed requests of other generations, before, after and without their mount, many
    times."""
    for generation in (0, 1 << 30):
        for partition in range(target.partitions):
            req_id = ReqId(77, generation, partition, 1)
            append = client.AppendRequest(req_id, -1, (), (), (), 0, b"replayed", data_checksum(b"replayed"))
            mount, feed = client.MountRequest(req_id, -1, 0), client.FeedRequest(req_id, -1)
            flush = client.FlushRequest(req_id)
            for messages in ((mount, feed, flush), (flush, feed, mount), (mount,) * 20, (append,)):
                raw = b"".join(CLIENT.encode(message, target.version) for message in messages)
                try:
                    async with wire(target) as made:
                        await made.send(raw * 3)
                except _CUT:
                    pass
