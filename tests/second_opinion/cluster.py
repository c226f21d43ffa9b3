"""A small cluster on detangle's loop: three storage nodes, two servers, clients, each on a host of its own.

The shipped code; ZooKeeper and the disks are the in-memory ones, disk jobs run inline.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any
from uuid import UUID

import detangle

from tests.second_opinion.bridge import Bridge, network_of_this_run
from waltz_admin import assignments, nodes, seeding, storage_admin
from waltz_client import WaltzClient
from waltz_client.settings import ClientSettings
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.records import unpack_record
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.quorum_backend import QuorumBackend
from waltz_server.server import WaltzServer
from waltz_server.settings import ServerSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.server import NodeOptions, StorageNode
from waltz_testkit.faulty_disk import FaultyDisk
from waltz_testkit.stored_records import iterate_records

ROOT = "/waltz"
DATA = "/data"
KEY = UUID(int=77)
PARTITIONS = 2
STORAGE = ("storage-1", "storage-2", "storage-3")
SERVERS = ("server-1", "server-2")
STORAGE_PORT, ADMIN_PORT, SERVER_PORT = 55280, 55281, 55180


class Inline(Executor):
    """Runs a job where it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class MiniCluster:
    """Everything of one run. `server_tls` None: plaintext."""

    def __init__(self, seed: int, server_tls: ssl.SSLContext | None) -> None:
        self.seed = seed
        self.zookeeper = MemoryZooKeeper()
        self.disks = {name: FaultyDisk() for name in STORAGE}
        self.bridge = Bridge(network_of_this_run(), server_tls)
        self.tls = TlsSettings(enabled=server_tls is not None, allow_unverified=True)
        self._stop = asyncio.Event()
        self._nodes: dict[str, StorageNode] = {}
        self._servers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Seed ZooKeeper, start the nodes, assign their partitions, start the servers."""
        session = self.zookeeper.session()
        await seeding.create(session, ROOT, "second", PARTITIONS, new_key=lambda: KEY)
        for name in STORAGE:
            connect = f"{name}:{STORAGE_PORT}"
            await nodes.add_storage_node(session, ROOT, connect, ADMIN_PORT, 0)
            await assignments.assign(session, ROOT, range(PARTITIONS), connect, tls=self.tls)
            await detangle.spawn(self._start_node(name), host=name)
        report = await storage_admin.sync_partitions(session, ROOT, tls=self.tls)
        if not report.complete:
            raise RuntimeError(f"not every node was reached: {report.failed}")
        for number, name in enumerate(SERVERS):
            self._servers.append(detangle.spawn(self._serve(name, self.seed + number), host=name))

    async def stop(self) -> None:
        """In order: servers, then nodes."""
        self._stop.set()
        await asyncio.gather(*self._servers)
        for name, node in self._nodes.items():
            await detangle.spawn(node.close(), host=name)

    async def _start_node(self, name: str) -> None:
        disk = self.disks[name]
        disk.add_dir(DATA)
        manager = StorageManager.open(
            DATA, cluster_key=KEY, num_partitions=PARTITIONS, now_ms=lambda: 0, fs=disk
        )
        options = NodeOptions(name, STORAGE_PORT, ADMIN_PORT)
        registry = MetricsRegistry(asyncio.get_running_loop().time)
        node = self._nodes[name] = StorageNode(manager, options, Inline(), registry)
        await node.start()

    async def _serve(self, name: str, seed: int) -> None:
        rng = random.Random(seed)
        settings = ServerSettings.from_mapping(
            {
                "zookeeper.connectString": "in-memory:2181",
                "zookeeper.sessionTimeout": 30_000,
                "cluster.root": ROOT,
                "server.port": SERVER_PORT,
                "server.bind.host": name,
                "server.ssl.enabled": False,
            }
        )

        def make_backend(zookeeper: ZooKeeperStore, params: StoreParams) -> QuorumBackend:
            return QuorumBackend(
                metadata=StoreMetadata(zookeeper, ROOT),
                params=params,
                tls=client_context(self.tls),
                settings=settings.store_settings(),
                rng=rng,
            )

        session = self.zookeeper.session()
        try:
            await WaltzServer(settings, zookeeper=session, make_backend=make_backend, rng=rng).serve(
                self._stop
            )
        finally:
            await session.close()

    def client(self, number: int) -> WaltzClient:
        """One client, to be entered on the host that uses it."""
        settings = ClientSettings.load(
            {
                "zookeeper.connectString": "in-memory:2181",
                "zookeeper.sessionTimeout": 30_000,
                "cluster.root": ROOT,
                "client.ssl.enabled": self.tls.enabled,
                "client.ssl.allowUnverified": True,
            }
        )
        loop = asyncio.get_running_loop()
        return WaltzClient(
            settings,
            store=self.zookeeper.session(),
            random=random.Random(self.seed * 100 + number),
            wall_clock=loop.time,
        )

    def logs(self, partition: int) -> dict[str, list[tuple[int, bytes]]]:
        """(id, data) of every record on every disk, in the order of the files."""
        found = {}
        for name, disk in self.disks.items():
            records = [unpack_record(raw)[0] for raw in iterate_records(DATA, partition, fs=disk)]
            found[name] = [(record.transaction_id, record.data) for record in records]
        return found
