"""A whole storage node: directory, disk threads, two ports and HTTP; orderly start and end.

Start: directory opened (partitions in parallel), storage port, admin port, HTTP. End: new requests are
refused, queued jobs finish and their replies go out, ports close, every partition is synced and closed, the
lock is given up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple
from uuid import UUID

from waltz_protocol.aio.channel import ChannelSettings
from waltz_protocol.aio.listener import Limits, Listener
from waltz_protocol.aio.receive_budget import DEFAULT_RECEIVE_BYTES, ReceiveBudget
from waltz_protocol.aio.tls import ServerTls
from waltz_protocol.aio.turns import Turns
from waltz_protocol.codec import ADMIN, NEWEST_STORAGE_VERSION, STORAGE, Protocol, storage_versions
from waltz_protocol.handshake import with_process
from waltz_runtime.http import HttpEndpoints
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage import __version__
from waltz_storage.engine.storage_manager import StorageManager, run_in_order
from waltz_storage.service.admin_handler import AdminHandler, MetricsDesk
from waltz_storage.service.data_handler import DataHandler, NodeIdentity
from waltz_storage.service.disk_pool import DiskPool, QueueLimits
from waltz_storage.service.disk_watch import DiskWatch
from waltz_storage.service.inline import InlineLimits
from waltz_storage.service.jobs import ReadLimits
from waltz_storage.service.metrics import StorageMetrics
from waltz_storage.service.vital import leave_to_the_loop


class NodeOptions(NamedTuple):
    """What a node needs beside its directory. Port 0 takes a free one (tests); `http_port` None = no
    HTTP."""

    host: str
    port: int
    admin_port: int
    http_port: int | None = None
    tls: ServerTls | None = None
    max_frame_bytes: int = 64 << 20
    queue_limits: QueueLimits = QueueLimits()
    read_limits: ReadLimits = ReadLimits()
    inline_limits: InlineLimits | None = None  # None = every job on a disk thread
    data_limits: Limits = Limits()
    admin_limits: Limits = Limits()
    receive_bytes: int = DEFAULT_RECEIVE_BYTES  # both ports together
    newest_version: int = NEWEST_STORAGE_VERSION  # of the protocol with servers
    on_defect: Callable[[Exception], None] = leave_to_the_loop  # of the queues: see `DiskPool`
    process_id: UUID | None = None  # a new one for each start, stated in the Hello of both ports


def run_in_threads(executor: Executor) -> Callable[[Sequence[Callable[[], None]]], None]:
    """A `run_all` for `StorageManager.open` that opens partitions in parallel."""

    def run_all(actions: Sequence[Callable[[], None]]) -> None:
        if len(actions) < 2:
            run_in_order(actions)
            return
        for future in [executor.submit(action) for action in actions]:
            future.result()

    return run_all


class StorageNode:
    """One running node on an opened directory. Owns the manager from `start` on and closes it."""

    def __init__(
        self, manager: StorageManager, options: NodeOptions, executor: Executor, registry: MetricsRegistry
    ) -> None:
        self.manager = manager
        self.registry = registry
        self._options = options
        self._executor = executor
        header = manager.control.header
        self._identity = NodeIdentity(header.cluster_key, header.num_partitions)
        self._metrics = StorageMetrics(registry, manager)
        self.pool = DiskPool(
            manager,
            executor,
            self._metrics,
            options.queue_limits,
            options.read_limits,
            options.inline_limits,
            options.on_defect,
        )
        self.disk = DiskWatch(manager, self.pool, executor)
        """Its figures are in the metrics; whoever runs the node runs `disk.run()` beside it."""
        self.disk.publish(registry)
        budget, turns = ReceiveBudget(options.receive_bytes), Turns()
        self._data = Listener(budget, turns)
        self._admin = Listener(budget, turns)
        self._http = HttpEndpoints(
            "waltz-storage", __version__, self.health, registry, health_name="storage-health-check"
        )

    @property
    def port(self) -> int:
        """The storage port."""
        return self._data.port

    @property
    def admin_port(self) -> int:
        """The admin port."""
        return self._admin.port

    @property
    def http_port(self) -> int | None:
        """The HTTP port, `None` without one."""
        return None if self._options.http_port is None else self._http.port

    async def start(self) -> None:
        """Open the ports. PortInUseError, ListenError or HttpBindError, one line each; nothing stays open
        then."""
        options = self._options
        metrics = MetricsDesk(self.registry)
        try:
            await self._data.start(
                options.host,
                options.port,
                self._channel_settings(
                    STORAGE, storage_versions(options.newest_version), "Waltz Storage Server"
                ),
                lambda: DataHandler(self.pool, self._identity),
                options.tls,
                options.data_limits,
            )
            await self._admin.start(
                options.host,
                options.admin_port,
                self._channel_settings(ADMIN, ADMIN.versions, "Waltz Storage Admin Server"),
                lambda: AdminHandler(self.pool, self._identity, metrics, self.disk.figures),
                options.tls,
                options.admin_limits,
            )
            if options.http_port is not None:
                await self._http.start(options.host, options.http_port)
        except BaseException:
            await self.close()
            raise

    def _channel_settings(self, protocol: Protocol, versions: tuple[int, ...], text: str) -> ChannelSettings:
        return ChannelSettings(
            magic=protocol.magic,
            versions=versions,
            hello_text=with_process(text, self._options.process_id),
            max_frame_bytes=self._options.max_frame_bytes,
        )

    def health(self) -> tuple[bool, dict[str, object]]:
        """Healthy unless a partition is damaged or out of service, the journal has failed, or the disk is
        full; the reasons are listed."""
        problems, full, journal = self.manager.problems(), self.disk.full, self.manager.journal_failed
        healthy = not problems and full is None and journal is None and not self._identity.closing
        body: dict[str, object] = {
            "healthy": healthy,
            "message": json.dumps({"storage": "true" if healthy else "false"}, separators=(",", ":")),
        }
        if problems:
            body["partitions"] = {str(partition_id): text for partition_id, text in problems.items()}
        if full is not None:
            body["disk"] = full
        if journal is not None:
            body["journal"] = journal
        return healthy, {"storage-health-check": body}

    async def close(self) -> None:
        """See the module. Idempotent; must be awaited to the end."""
        self._identity.closing = True
        await self.pool.drained()
        await self._data.close("the storage node is shutting down")
        await self._admin.close("the storage node is shutting down")
        await self._http.close()
        await asyncio.wrap_future(self._executor.submit(self.manager.close))


async def open_manager(
    directory: str,
    cluster_key: UUID,
    num_partitions: int,
    open_directory: Callable[..., StorageManager],
    executor: Executor,
) -> StorageManager:
    """Open the directory on a thread of its own, partitions on the pool's threads."""
    with ThreadPoolExecutor(1, thread_name_prefix="open") as opener:
        future = opener.submit(
            open_directory,
            directory,
            cluster_key=cluster_key,
            num_partitions=num_partitions,
            run_all=run_in_threads(executor),
        )
        return await asyncio.wrap_future(future)
