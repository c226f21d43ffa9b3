"""A storage node on 127.0.0.1 inside the test's loop, and raw connections to it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from waltz_protocol.aio.storage_connection import StorageAdminConnection, StorageConnection
from waltz_protocol.codec import ADMIN, NEWEST_STORAGE_VERSION, STORAGE
from waltz_protocol.messages.fields import Message
from waltz_protocol.records import unpack_record
from waltz_protocol.types import Endpoint, Record
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.files import FileSystem, OsFileSystem
from waltz_storage.engine.free_space import FreeSpace
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.disk_pool import QueueLimits
from waltz_storage.service.inline import InlineLimits
from waltz_storage.service.jobs import ReadLimits
from waltz_storage.service.server import NodeOptions, StorageNode

from .support import JOURNAL_IDS, KEY, now_ms, payload, wire_record

HELLO = "4800000000001e0000000100000000001457616c747a2053746f7261676520436c69656e74"
ADMIN_HELLO = HELLO


class GatedExecutor(Executor):
    """Runs jobs only when the test says so, in the loop's own thread."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[..., Any], tuple[Any, ...], Future[Any]]] = []
        self.open = True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.open:
            future.set_result(fn(*args, **kwargs))
        else:
            self.waiting.append((fn, args, future))
        return future

    def step(self) -> None:
        """Run the oldest waiting job."""
        fn, args, future = self.waiting.pop(0)
        future.set_result(fn(*args))

    def release(self) -> None:
        """Run everything that waits, and from now on at once."""
        self.open = True
        while self.waiting:
            self.step()


@asynccontextmanager
async def running_node(
    directory: Path | str,
    *,
    key: UUID = KEY,
    num_partitions: int = 4,
    fs: FileSystem | None = None,
    executor: Executor | None = None,
    threshold: int = 1_000_000_000,
    queue_limits: QueueLimits = QueueLimits(),  # noqa: B008
    read_limits: ReadLimits = ReadLimits(),  # noqa: B008
    inline_limits: InlineLimits | None = None,
    http: bool = False,
    assign: tuple[int, ...] = (),
    room: FreeSpace | None = None,
    journal: JournalSettings | None = None,
    newest_version: int = NEWEST_STORAGE_VERSION,
    process_id: UUID | None = None,
) -> AsyncIterator[StorageNode]:
    pool = executor if executor is not None else ThreadPoolExecutor(2, thread_name_prefix="disk")
    manager = StorageManager.open(
        str(directory),
        cluster_key=key,
        num_partitions=num_partitions,
        now_ms=now_ms,
        settings=EngineSettings(threshold),
        fs=fs if fs is not None else OsFileSystem(),
        room=room,
        journal=journal,
        journal_id=None if journal is None else next(JOURNAL_IDS),
    )
    for partition_id in assign:
        manager.assign(partition_id)
    manager.commit()
    options = NodeOptions(
        "127.0.0.1",
        0,
        0,
        0 if http else None,
        queue_limits=queue_limits,
        read_limits=read_limits,
        inline_limits=inline_limits,
        newest_version=newest_version,
        process_id=process_id,
    )
    node = StorageNode(manager, options, pool, MetricsRegistry())
    await node.start()
    try:
        yield node
    finally:
        if isinstance(pool, GatedExecutor):
            pool.release()
        await node.close()
        pool.shutdown()


@asynccontextmanager
async def connected(node: StorageNode, *, timeout_seconds: float = 10.0) -> AsyncIterator[StorageConnection]:
    connection = await StorageConnection.open(
        Endpoint("127.0.0.1", node.port),
        cluster_key=node.manager.control.header.cluster_key,
        num_partitions=node.manager.control.num_partitions,
        tls=None,
        request_timeout_seconds=timeout_seconds,
    )
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


@asynccontextmanager
async def admin_connected(
    node: StorageNode, *, reports: bool = False
) -> AsyncIterator[StorageAdminConnection]:
    """`reports`: as a tool connects that observes the node."""
    connection = await StorageAdminConnection.open(
        Endpoint("127.0.0.1", node.admin_port),
        cluster_key=node.manager.control.header.cluster_key,
        num_partitions=node.manager.control.num_partitions,
        tls=None,
        reports=reports,
    )
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


class RawConnection:
    """Bytes out, frames in. The Hello is exchanged; Open is up to the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, admin: bool) -> None:
        self._reader, self._writer, self._admin = reader, writer, admin

    async def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))
        await self._writer.drain()

    async def frame(self) -> bytes:
        """The next whole frame; IncompleteReadError when the node has closed."""
        head = await self._reader.readexactly(7)
        return head + await self._reader.readexactly(struct.unpack(">i", head[3:])[0])

    async def message(self) -> Any:
        return (ADMIN if self._admin else STORAGE).decode((await self.frame())[7:], 0)

    async def ask(self, message: Message) -> Any:
        await self.send((ADMIN if self._admin else STORAGE).encode(message, 0))
        return await self.message()

    async def is_closed(self) -> bool:
        return await self._reader.read(1) == b""

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def raw_connection(node: StorageNode, *, admin: bool = False) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.admin_port if admin else node.port)
    connection = RawConnection(reader, writer, admin=admin)
    try:
        await connection.send(bytes.fromhex(HELLO))
        await connection.frame()
        yield connection
    finally:
        await connection.close()


def record(txid: int, size: int = 40) -> Record:
    return unpack_record(wire_record(txid, payload(txid, size)))[0]


def records(first: int, count: int, size: int = 40) -> list[Record]:
    return [record(txid, size) for txid in range(first, first + count)]
