"""The administrator: a short-lived process per operation, with functions of `waltz_admin` on its own
session."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from tests.sim.cluster.server_role import CLUSTER_ROOT
from tests.sim.cluster.shape import ADMIN_PORT, STORAGE_PORT, Shape, connect_string
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.zookeeper import SimZooKeeper
from waltz_admin import accept_restored, assignments, nodes, offline_copy, seeding, storage_admin
from waltz_admin.errors import AdminError
from waltz_admin.forget import Forgotten, forget_replica
from waltz_admin.replace import NodeReplacement, ReplaceOptions
from waltz_cluster.errors import ClusterError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

T = TypeVar("T")

ADMIN_HOST = "admin"
NO_TLS = TlsSettings(enabled=False)
SESSION_SECONDS = 10.0
SYNC_AGAIN_SECONDS = 1.0


class RefusedError(Exception):
    """The operation ended with an error that is meant for an administrator, or took too long."""


class Admin:
    """Runs operations, one process each."""

    def __init__(self, loop: SimLoop, zookeeper: SimZooKeeper, shape: Shape) -> None:
        self._loop = loop
        self._zookeeper = zookeeper
        self._shape = shape
        self._numbers = itertools.count(1)

    async def run(
        self, what: str, action: Callable[[ZooKeeperStore], Awaitable[T]], seconds: float = 30.0
    ) -> T:
        """Run `action` in a process; RefusedError. What it raises beyond that is raised here."""
        future: asyncio.Future[T] = self._loop.create_future()

        async def main() -> None:
            session = await self._zookeeper.connect(SESSION_SECONDS)
            try:
                result = await action(session)
            finally:
                await session.close()
            if not future.done():
                future.set_result(result)

        host = self._loop.host(ADMIN_HOST)
        process = self._loop.spawn_process(f"admin-{next(self._numbers)} {what}", host, main)

        def ended(_: bool) -> None:
            if not future.done():
                future.set_exception(process.exit_error or RefusedError(f"{what}: killed"))

        process.on_death.append(ended)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            process.kill()
            raise RefusedError(f"{what}: not done within {seconds:g} s") from None
        except (AdminError, ClusterError) as error:
            raise RefusedError(f"{what}: {type(error).__name__}: {error}") from None

    async def create_cluster(self) -> UUID:
        """Seed ZooKeeper: cluster, nodes, placement. Returns the cluster key."""
        shape = self._shape
        key = UUID(int=self._loop.rng("cluster key").getrandbits(128), version=4)

        async def seed(store: ZooKeeperStore) -> None:
            await seeding.create(store, CLUSTER_ROOT, "sim", shape.partitions, new_key=lambda: key)
            for number, name in enumerate(shape.storage_names(), 1):
                connect = connect_string(name)
                await nodes.add_storage_node(store, CLUSTER_ROOT, connect, ADMIN_PORT, 0)
                held = [pid for pid, copies in enumerate(shape.placement) if number in copies]
                await assignments.assign(store, CLUSTER_ROOT, held, connect, tls=NO_TLS)

        await self.run("create", seed)
        return key

    async def sync_partitions(self, seconds: float) -> None:
        """Assign to every node its partitions, until all have them or the time is over."""
        deadline = self._loop.time() + seconds
        while True:
            try:
                report = await self.run(
                    "sync-partitions",
                    lambda store: storage_admin.sync_partitions(store, CLUSTER_ROOT, tls=NO_TLS),
                )
                if report.complete:
                    return
                problem = "; ".join(f"{node}: {text}" for node, text in sorted(report.failed.items()))
            except RefusedError as error:
                problem = str(error)
            if self._loop.time() >= deadline:
                raise RefusedError(problem)
            await asyncio.sleep(SYNC_AGAIN_SECONDS)

    async def assign(self, partition: int, node: str) -> None:
        """One more replica."""
        await self.run(
            f"assign {partition} {node}",
            lambda store: assignments.assign(
                store, CLUSTER_ROOT, [partition], connect_string(node), tls=NO_TLS, allow_pause=True
            ),
        )

    async def unassign(self, partition: int, node: str) -> None:
        """One replica less; refused unless the others are proven to have everything."""
        await self.run(
            f"unassign {partition} {node}",
            lambda store: assignments.unassign(
                store, CLUSTER_ROOT, [partition], connect_string(node), tls=NO_TLS, keep_group_copy=False
            ),
        )

    async def set_available(self, partition: int, node: str, available: bool) -> None:
        """Switch the flag of a copy."""
        await self.run(
            f"set available {partition} {node} {available}",
            lambda store: storage_admin.set_availability(
                store, CLUSTER_ROOT, Endpoint(node, ADMIN_PORT), [partition], available, tls=NO_TLS
            ),
        )

    async def copy(self, partition: int, source: str, target: str) -> int:
        """Copy a partition past the servers onto a copy that is out of service; how many records it
        lacked."""
        done = await self.run(
            f"copy {partition} {source} {target}",
            lambda store: offline_copy.recover_partition(
                store,
                CLUSTER_ROOT,
                source_admin=Endpoint(source, ADMIN_PORT),
                destination_admin=Endpoint(target, ADMIN_PORT),
                destination_storage_port=STORAGE_PORT,
                partition_id=partition,
                source_tls=NO_TLS,
                destination_tls=NO_TLS,
            ),
        )
        return done.copied

    async def clear_states(self, partition: int) -> tuple[PartitionMetadata, int]:
        """Lose the replica states of a partition, not its session id; what was there, and its version.
        RefusedError without any."""

        async def clear(store: ZooKeeperStore) -> tuple[PartitionMetadata, int]:
            metadata = StoreMetadata(store, CLUSTER_ROOT)
            found, version = await metadata.read_partition(partition)
            if found is None or not found.replicas:
                raise AdminError(f"partition {partition} has no replica states")
            await metadata.write_partition(partition, replace(found, replicas={}), version)
            return found, version

        return await self.run(f"clear states {partition}", clear)

    async def restore_states(self, partition: int, saved: PartitionMetadata, saved_version: int) -> None:
        """Put them back, unless the partition has got others meanwhile (it had no record). RefusedError also
        when ZooKeeper still shows what was there before they were lost (a follower that lags)."""

        async def restore(store: ZooKeeperStore) -> None:
            metadata = StoreMetadata(store, CLUSTER_ROOT)
            found, version = await metadata.read_partition(partition)
            if version <= saved_version:
                raise AdminError(f"partition {partition}: ZooKeeper shows an old state")
            if found is not None and not found.replicas:
                await metadata.write_partition(partition, replace(found, replicas=saved.replicas), version)

        await self.run(f"restore states {partition}", restore)

    async def forget(self, node: str, partitions: Sequence[int], seconds: float = 30.0) -> Forgotten:
        """Give up a node's copies."""
        return await self.run(
            f"forget {node} {partitions}",
            lambda store: forget_replica(store, CLUSTER_ROOT, connect_string(node), partitions, tls=NO_TLS),
            seconds,
        )

    async def replace(self, old: str, new: str, options: ReplaceOptions, seconds: float = 30.0) -> None:
        """Replace a node by another one, or do what is left of it."""
        await self.run(
            f"replace {old} {new}",
            lambda store: NodeReplacement(
                store,
                CLUSTER_ROOT,
                connect_string(old),
                connect_string(new),
                ADMIN_PORT,
                tls=NO_TLS,
                options=options,
            ).run(),
            seconds,
        )

    async def accept_restored(self, partition: int, removed: Sequence[str] = ()) -> int:
        """Make the metadata of a partition again from what the nodes hold; of how many. `removed`: nodes that
        were taken out of it since. RefusedError also when nothing is wrong."""
        gone = [connect_string(name) for name in removed]

        async def accept(store: ZooKeeperStore) -> int:
            found, _ = await accept_restored.accept_restored(
                store, CLUSTER_ROOT, [partition], tls=NO_TLS, removed=gone
            )
            return len(found)

        return await self.run(f"accept restored {partition}", accept)

    async def rebuild(self, partition: int, node: str, *, fill: bool = True) -> None:
        """Throw away a node's copy of a partition and, with `fill`, let it be filled again."""

        async def both(store: ZooKeeperStore) -> None:
            endpoint = Endpoint(node, ADMIN_PORT)
            for assigned in (False, True) if fill else (False,):
                await storage_admin.set_assignment(
                    store,
                    CLUSTER_ROOT,
                    endpoint,
                    [partition],
                    assigned,
                    tls=NO_TLS,
                    delete_files=not assigned,
                )

        await self.run(f"rebuild {partition} {node}", both)
