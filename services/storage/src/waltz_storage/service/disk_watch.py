"""Looks at the disk every ten seconds, on a disk thread: figures for metrics, what could not be read, and
what a full disk kept closed.

It logs once when the disk has become full and once when there is room again. Unless it is full it opens the
partitions that could not be opened for want of space, or of file descriptors. Appends do not wait for it:
each looks for itself (`engine.free_space`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor

import structlog

from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.free_space import DiskUsage
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.disk_pool import DiskPool
from waltz_storage.service.growth import Growth
from waltz_storage.service.metrics import GROUP

LOOK_SECONDS = 10.0

log = structlog.get_logger(__name__)


class DiskWatch:
    """Figures of the disk below a node. Owner: the loop; only `_measure` runs on a disk thread."""

    def __init__(
        self,
        manager: StorageManager,
        pool: DiskPool,
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager = manager
        self._pool = pool
        self._executor = executor
        self._clock = clock
        self._reported: str | None = None
        self.growth = Growth()
        self.usage: DiskUsage | None = None
        """Of the last look; `None` before the first, or when the file system cannot be asked."""
        self._figures: dict[str, Callable[[], object]] = {
            "log-bytes": lambda: self.log_bytes,
            "log-growth-bytes-per-day": lambda: self.growth.bytes_per_day,
            "log-growth-window-seconds": lambda: self.growth.window_seconds,
            "disk-size-bytes": lambda: None if self.usage is None else self.usage.size_bytes,
            "disk-free-bytes": lambda: None if self.usage is None else self.usage.free_bytes,
            "disk-reserve-bytes": lambda: self.reserve_bytes,
            "disk-days-to-full": lambda: self.days_to_full,
            "disk-full": lambda: self.full is not None,
        }

    @property
    def log_bytes(self) -> int:
        """Bytes of all open partitions now."""
        return sum(partition.log_bytes for partition in list(self._manager.partitions.values()))

    @property
    def reserve_bytes(self) -> int:
        """What is kept free."""
        return self._manager.room.reserve_bytes

    @property
    def full(self) -> str | None:
        """Why appends are refused, as of the last look or append."""
        return self._manager.room.refused

    @property
    def days_to_full(self) -> float | None:
        """See `Growth.days_to_full`."""
        return self.growth.days_to_full(self.reserve_bytes)

    def publish(self, registry: MetricsRegistry) -> None:
        """Gauges of the disk, in bytes, as of the last observation; no value where nothing is known."""
        for name, figure in self._figures.items():
            registry.gauge(f"{GROUP}.{name}", figure)

    def figures(self) -> dict[str, object]:
        """The same by the names of the gauges, without their group."""
        return {name: figure() for name, figure in self._figures.items()}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look once, and open what can be opened now."""
        self.usage = await asyncio.wrap_future(self._executor.submit(self._measure))
        if self.usage is not None:
            self.growth.look(self._clock(), self.log_bytes, self.usage.free_bytes)
        self._pool.flush()
        full = self.full
        if (full is None) != (self._reported is None):
            log.warning(full if full is not None else "the disk has free space again: appends are taken")
        self._reported = full
        if full is None:
            await self._reopen()

    def _measure(self) -> DiskUsage | None:
        self._say_what_was_not_read()
        room = self._manager.room
        try:
            room.refresh()
            return room.usage()
        except OSError as error:
            log.warning("the free space of the file system cannot be read", reason=str(error))
            return None

    def _say_what_was_not_read(self) -> None:
        """A line per look and partition: whoever asks for a record that cannot be read asks again and
        again."""
        for partition_id, partition in list(self._manager.partitions.items()):
            reason, partition.unreadable = partition.unreadable, ""
            if reason:
                log.warning("a record cannot be read", partition=partition_id, reason=reason)

    async def _reopen(self) -> None:
        for partition_id in sorted(self._manager.to_open_later):
            opened = await self._pool.run(partition_id, lambda manager, pid=partition_id: manager.reopen(pid))  # type: ignore[misc]
            self._pool.refresh(partition_id)
            if opened:
                log.warning(
                    "the partition has the disk space or file descriptors that it lacked and is in service",
                    partition=partition_id,
                )
