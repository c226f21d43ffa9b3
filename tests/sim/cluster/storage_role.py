"""A storage node: the shipped engine and service on a simulated disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from uuid import UUID

from tests.sim.checkers.nodes import Durable, durable
from tests.sim.cluster.guards import NodeMemory
from tests.sim.cluster.role import Role, Unexpected
from tests.sim.cluster.shape import ADMIN_PORT, STORAGE_PORT, Shape, connect_string
from tests.sim.kernel.disk import DATA_DIRECTORY, Seconds, SimDisk, SimFileSystem, partition_directory
from tests.sim.kernel.executor import SimExecutor
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.old_files import OldFileSystem
from tests.sim.kernel.process import Process, current
from tests.sim.kernel.stepped import SteppedExecutor
from waltz_protocol.codec import NEWEST_STORAGE_VERSION, STORAGE_OF_0_13_2
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.files import join
from waltz_storage.engine.journal.directory import settle_directory
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import CONTROL_FILE_NAME
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.server import NodeOptions, StorageNode

WITHOUT_JOURNAL = 0.2
"""Of the lives of a node in the seeds with journals."""
OLD_VERSION_SHARES = (0.0, 0.0, 0.3, 0.6, 1.0)
"""Of the lives of nodes in which they speak version 0 of the storage protocol; one of them for a seed."""
JOURNAL_FILE_BYTES = (8 << 10, 16 << 10, 64 << 10)


class WatchedManager(StorageManager):
    """Says when it has given up the directory."""

    closed: Callable[[], object] | None = None

    unassigned: Callable[[int], object] | None = None

    def close(self) -> None:
        """See the base class."""
        super().close()
        if self.closed is not None:
            self.closed()

    def unassign(self, partition_id: int, *, delete_files: bool) -> None:
        """See the base class."""
        super().unassign(partition_id, delete_files=delete_files)
        if self.unassigned is not None:
            self.unassigned(partition_id)


class StorageRole(Role):
    """One storage node. `disk` outlives its processes."""

    def __init__(
        self,
        loop: SimLoop,
        name: str,
        unexpected: Unexpected,
        shape: Shape,
        cluster_key: UUID,
        disk: SimDisk,
        memory: NodeMemory,
    ) -> None:
        super().__init__(loop, name, unexpected)
        self.memory = memory
        self.connect_string = connect_string(name)
        self.disk = disk
        self.node: StorageNode | None = None
        self.executor: SimExecutor[Durable] | None = None
        self.old = False
        """It starts as a node of release 0.13.2."""
        self.restored = False
        """Its directory was copied back and has to be reset before the next start."""
        self.journals: random.Random | None = None
        """Draws for each life of the node whether it has a journal, and its size; without it none has."""
        self._shape = shape
        self.cluster_key = cluster_key
        self._was_old = False

    async def main(self, stop: asyncio.Event) -> None:
        """As `waltz_storage.__main__.serve`, without TLS, HTTP and threads."""
        process = current()
        if process is None:
            raise RuntimeError("a storage node runs in a process")
        shape = self._shape
        system = self.disk.mount(process, OldFileSystem if self.old else None)
        if self.old or self._was_old:
            self.memory.forget_fences()
        self.memory.blind = self.old
        self._was_old = self.old
        if self.restored:
            reset_for_restore(DATA_DIRECTORY, fs=system)
            self.restored = False
        elif self.old:
            self._settle(process)
        manager = self._open(process, system)
        executor = self._executor(process, manager)
        self.memory.opened(manager)
        if isinstance(system, OldFileSystem):
            manager.unassigned = partial(self._forget_fence, system)
        self._claim(process, manager)
        executor.observe, executor.told = partial(durable, manager), durable(manager)
        self.executor = executor
        options = NodeOptions(
            self.name,
            STORAGE_PORT,
            ADMIN_PORT,
            queue_limits=shape.queue_limits,
            inline_limits=None,
            newest_version=self._newest_version(),
        )
        node = self.node = StorageNode(manager, options, executor, MetricsRegistry(self.loop.time))
        self.memory.watch(node.pool)
        for partition_id, problem in manager.problems().items():
            self.loop.note(f"partition {partition_id} is out of service: {problem}")
        await node.start()
        try:
            await stop.wait()
        finally:
            await node.close()

    def _settle(self, process: Process) -> None:
        """The replay of `waltz disk settle`, without which 0.13.2 refuses a directory that needs its journal.
        It sees the files that 0.13.2 does not know, and the journal speaks of them."""
        system = self.disk.mount(process)
        if system.exists(join(DATA_DIRECTORY, CONTROL_FILE_NAME)):
            settle_directory(system, DATA_DIRECTORY, None)

    def _executor(self, process: Process, manager: StorageManager) -> SimExecutor[Durable]:
        """With a journal, jobs leave marks for one another, and settling holds a lock while it syncs."""
        if manager.files is None:
            return SimExecutor(self.loop, self.disk, process)
        executor: SteppedExecutor[Durable] = SteppedExecutor(self.loop, self.disk, process)
        manager.files._settling = executor.lock()  # type: ignore[assignment]
        return executor

    def _newest_version(self) -> int:
        """Of the storage protocol, in this life: a rolling upgrade and its way back change it between two of
        them. A node of 0.13.2 speaks its own."""
        share = self.loop.rng("storage versions").choice(OLD_VERSION_SHARES)
        rng = self.loop.rng(f"{self.name}/{self.incarnation}/version")
        if self.old or rng.random() < share:
            return STORAGE_OF_0_13_2
        return NEWEST_STORAGE_VERSION

    def _claim(self, process: Process, manager: WatchedManager) -> None:
        """Nobody else may serve the directory until this one has closed it. Violation:
        `directory_shared`."""
        for other in self.disk.users:
            self.memory.report(
                "directory_shared", f"{process.name} serves the directory that {other.name} serves"
            )
        self.disk.users[process] = None
        manager.closed = lambda: self.disk.users.pop(process, None)

    def _forget_fence(self, system: OldFileSystem, partition_id: int) -> None:
        """A node of 0.13.2 knows nothing of a partition that was taken away."""
        system.forget(partition_directory(partition_id))
        if self.node is not None:
            self.node.pool.queue(partition_id).fence.session_id = -1

    def _journal(self) -> JournalSettings | None:
        if self.journals is None or self.old or self.journals.random() < WITHOUT_JOURNAL:
            return None
        return JournalSettings(None, self.journals.choice(JOURNAL_FILE_BYTES), 3)

    def _open(self, process: Process, system: SimFileSystem) -> WatchedManager:
        journal = self._journal()
        journal_id = None if self.journals is None else UUID(int=self.journals.getrandbits(128))
        return WatchedManager.open(
            DATA_DIRECTORY,
            cluster_key=self.cluster_key,
            num_partitions=self._shape.partitions,
            now_ms=process.wall_ms,
            settings=self._shape.engine,
            fs=system,
            journal=journal,
            journal_id=journal_id,
        )

    def in_trouble(self) -> bool:
        """Its health has something that a start may mend: partitions out of service, or its journal."""
        manager = None if self.node is None else self.node.manager
        return manager is not None and bool(manager.problems() or manager.journal_failed)

    def power_off(self) -> None:
        """See `Role`; also what a process that is gone already had not synced is at stake."""
        alive = self.alive
        self.memory.power_lost()
        super().power_off()
        if not alive:
            self.disk.power_cut()

    def heal_disk(self) -> None:
        """No fault is on order any longer, and the disk is as fast as the shape says."""
        self.disk.heal()
        self.disk.sync_seconds = Seconds(*self._shape.sync_seconds)

    def died(self) -> None:
        """Whoever looks at the node's memory after this would see a ghost."""
        if self.executor is not None and self.node is not None:
            self.memory.ended(self.executor.told, self.node.manager)
        self.node = None
        self.executor = None

    def foreseen(self, error: BaseException) -> bool:
        """A directory that cannot be used is said in one line; the checks at the end see whether that
        lasts."""
        return isinstance(error, StorageStartError) or super().foreseen(error)
