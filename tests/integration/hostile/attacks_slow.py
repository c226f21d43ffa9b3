"""Peers that take their time: they say nothing, say it byte by byte, do not read, or vanish."""

import asyncio
import socket
import struct

from tests.integration.hostile.attacks_frames import running_session
from tests.integration.hostile.wires import Target, Wire, abort_all, careless_tls, crowd, wire
from waltz_protocol.codec import ADMIN, CLIENT, STORAGE
from waltz_protocol.handshake import encode_hello
from waltz_protocol.messages import admin, client, storage
from waltz_protocol.types import ReqId

CROWD = 500
_DRIP_SECONDS = 0.25
_TCP_REPAIR = 19
_SMALL_BUFFER = 4096


async def silent(target: Target) -> None:
    """500 connections that say nothing at all, not even TLS."""
    wires = await crowd(CROWD, lambda: Wire.open(target, None))
    await asyncio.sleep(target.seconds)
    abort_all(wires)


async def silent_after_tls(target: Target) -> None:
    """500 connections that do TLS and then nothing."""
    wires = await crowd(CROWD, lambda: Wire.open(target, careless_tls(target)))
    await asyncio.sleep(target.seconds)
    abort_all(wires)


async def drip_hello(target: Target) -> None:
    """500 connections that send their Hello (over TLS: the beginning of TLS) byte by byte."""
    wires = await crowd(CROWD, lambda: Wire.open(target, None))
    first = b"\x16\x03\x01\x02\x00\x01" if target.tls else encode_hello((0,), "slow")
    await _drip(wires, first, target.seconds)


async def drip_frames(target: Target) -> None:
    """500 connections that do everything right, and then send a frame byte by byte."""

    async def greeted() -> Wire:
        made = await Wire.open(target, careless_tls(target))
        await made.greet(target, opened=True)
        return made

    wires = await crowd(CROWD, greeted)
    await _drip(wires, target.frame(bytes(1000)), target.seconds)


async def _drip(wires: list[Wire], raw: bytes, seconds: float) -> None:
    until = asyncio.get_running_loop().time() + seconds
    for byte in raw:
        for made in wires:
            made.writer.write(bytes((byte,)))
        await asyncio.sleep(_DRIP_SECONDS)
        if asyncio.get_running_loop().time() > until:
            break
    abort_all(wires)


async def half_frames(target: Target) -> None:
    """Ten connections that announce 60 MB each, send two thirds of it, and stop."""

    async def one() -> Wire:
        made = await Wire.open(target, careless_tls(target))
        await made.greet(target, opened=True)
        try:
            async with asyncio.timeout(target.seconds + 2):
                await made.send(target.frame(b"\x06" + bytes(20), 60 << 20))
                for _ in range(40):
                    await made.send(bytes(1 << 20))
        except (OSError, TimeoutError):
            pass
        return made

    wires = await crowd(10, one)
    abort_all(wires)


async def deaf_client(target: Target) -> None:
    """A client that asks for the whole log, transaction by transaction and as a feed, and reads nothing of
    it."""
    partitions = range(target.partitions)
    data = b"".join(
        CLIENT.encode(client.TransactionDataRequest(ReqId(66, 1, p, 1), txid), target.version)
        for p in partitions
        for txid in range(20)
    )
    mounts = b"".join(
        CLIENT.encode(message, target.version)
        for p in partitions
        for message in (
            client.MountRequest(ReqId(66, 1, p, 1), -1, 1),
            client.FeedRequest(ReqId(66, 1, p, 1), -1),
        )
    )
    await _ask_on(target, mounts + data)


async def deaf_server(target: Target) -> None:
    """A server (it has the cluster key) that reads the log with its own session's id again and again, and
    takes nothing."""
    session = await running_session(target, 0)
    ids = (session, 1, 0)
    listed = storage.RecordListRequest(*ids, 0, 10_000)
    ranged = storage.StoredRangeRequest(*ids, 0, 10_000, 10_000, 1 << 30, storage.UNRESOLVED)
    asked = STORAGE.encode(listed, target.version) + STORAGE.encode(ranged, target.version)
    await _ask_on(target, asked * 100)


async def deaf_administrator(target: Target) -> None:
    """An administrator who asks for all metrics and records, and reads nothing."""
    asked = ADMIN.encode(admin.MetricsRequest(1), 0) + ADMIN.encode(
        admin.RecordListRequest(2, 0, 0, 10_000), 0
    )
    await _ask_on(target, asked * 100)


async def _ask_on(target: Target, asked: bytes) -> None:
    """Several connections that ask the same for as long as the attack continues, without reading."""

    async def one() -> Wire:
        made = await Wire.open(target, careless_tls(target), _SMALL_BUFFER)
        await made.greet(target, opened=True)
        made.writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(target.seconds):
                while True:
                    await made.send(asked)
                    await asyncio.sleep(0)
        except (OSError, TimeoutError):
            pass
        return made

    abort_all(await crowd(5, one))


async def vanished(target: Target) -> None:
    """50 connections whose peers are gone without a word: their sockets disappear from the kernel, nothing is
    sent."""

    async def one() -> Wire:
        made = await Wire.open(target, careless_tls(target))
        await made.greet(target, opened=True)
        return made

    wires = await crowd(50, one)
    for made in wires:
        sock = made.writer.get_extra_info("socket")
        try:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        except OSError:
            pass  # not permitted here: then the peers only fall silent
    await asyncio.sleep(target.seconds / 2)
    abort_all(wires)
    await asyncio.sleep(target.seconds / 2)


async def tiny_records(target: Target) -> None:
    """Somebody with the cluster key appends a frame of almost 64 MB that holds nothing but empty records."""
    record = struct.pack(">q16xiii", 0, 0, 0, 0)
    count = (60 << 20) // len(record)
    ids = struct.pack(">bqqii", storage.AppendRequest.TYPE, 0, 1, 0, count)
    raw = target.frame(ids + record * count + b"\0")
    async with wire(target, opened=True) as made:
        try:
            await made.send(raw)
            await made.frame()
        except (OSError, asyncio.IncompleteReadError):
            pass


async def large_strangers(target: Target) -> None:
    """Appends of 20 MB by peers that never opened the connection."""

    async def one() -> Wire:
        made = await Wire.open(target, careless_tls(target))
        await made.greet(target)
        try:
            async with asyncio.timeout(target.seconds + 2):
                await made.send(target.frame(struct.pack(">bqqii", 6, 1 << 60, 1, 0, 1), 20 << 20))
                for _ in range(20):
                    await made.send(bytes(1 << 20))
        except (OSError, TimeoutError):
            pass
        return made

    abort_all(await crowd(10, one))
