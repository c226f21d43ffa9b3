"""What runs in the pods of the tests: the shipped storage node, server and copy job, in this process, on
loopback ports.

Each is configured from the ConfigMap and the Secret that its pod mounts, as the operator wrote them: a key
that a role refuses, or a certificate that does not fit, fails here as it would in a cluster.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from operator_tests.apiserver.guarded import Ensemble
from operator_tests.apiserver.loop import cluster_loop
from waltz_cluster.cluster_params import read_store_params
from waltz_cluster.config.files import flatten
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.tls import client_context, server_context
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.quorum_backend import QuorumBackend
from waltz_server.server import WaltzServer
from waltz_server.settings import ServerSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.server import NodeOptions, StorageNode
from waltz_storage.settings import StorageSettings

Files = Mapping[str, bytes]
TLS_DIRECTORY, AUTH_DIRECTORY = "/etc/waltz/tls", "/etc/waltz/zookeeper-auth"
_SESSION_SECONDS = 4.0


def mount(
    directory: Path,
    secret: Mapping[str, Any] | None,
    items: Sequence[Mapping[str, str]] | None = None,
) -> None:
    """The files of a Secret, as its pod sees them when it starts; `items`: which, and where."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = {one["key"]: one["path"] for one in items or ()}
    for name, value in ((secret or {}).get("data") or {}).items():
        (directory / paths.get(name, name)).write_bytes(base64.b64decode(value))


def read_config(
    config_map: Mapping[str, Any], file: str, tls: Path, **overrides: object
) -> dict[str, object]:
    """The flat keys of a configuration file with the paths of this machine in them."""
    text = config_map["data"][file]
    for mounted in (TLS_DIRECTORY, AUTH_DIRECTORY):
        text = text.replace(mounted, str(tls))
    keys = flatten(yaml.safe_load(text), source=file)
    return dict(keys)


class StoragePod:
    """A storage node on the directories of its claims: that of its data, and that of its journal where it has
    a volume of its own."""

    def __init__(
        self,
        config: Mapping[str, object],
        host: str,
        directory: Path,
        zookeeper: Ensemble,
        journal: Path | None = None,
    ) -> None:
        mounted = {} if journal is None else {"storage.journal.directory": str(journal / "journal")}
        self._volumes = [one for one in (directory, journal) if one is not None]
        self._settings = StorageSettings.from_mapping(
            {**config, **mounted, "storage.directory": str(directory), "storage.bind.host": "127.0.0.1"},
            source=host,
        )
        self._host = host
        self._zookeeper = zookeeper
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="disk")
        self.node: StorageNode | None = None

    async def start(self) -> None:
        """ClusterNotFoundError while there is no cluster in ZooKeeper, as in a pod that crashes and starts
        again. StorageStartError: with these volumes it never starts."""
        session = await self._zookeeper.login(self._settings, _SESSION_SECONDS, self._host)
        try:
            params = await read_store_params(session, self._settings.cluster_root)
        finally:
            await session.close()
        for volume in self._volumes:
            volume.mkdir(parents=True, exist_ok=True)
        manager = StorageManager.open(
            self._settings.directory,
            cluster_key=params.cluster_key,
            num_partitions=params.num_partitions,
            now_ms=lambda: int(time.time() * 1000),
            settings=self._settings.engine(),
            journal=self._settings.journal(),
            journal_id=uuid4(),
            journal_directory=self._settings.journal_directory,
        )
        tls = server_context(self._settings.tls_settings("storage.ssl"))
        data, admin = self._settings.port_limits()
        options = NodeOptions(
            "127.0.0.1", 0, 0, tls=tls, data_limits=data, admin_limits=admin, process_id=uuid4()
        )
        self.node = StorageNode(manager, options, self._pool, MetricsRegistry())
        await self.node.start()
        names = cluster_loop().names
        names[self._host, self._settings.port] = self.node.port
        names[self._host, self._settings.admin_port] = self.node.admin_port

    def ready(self) -> bool:
        return self.node is not None and self.node.health()[0]

    async def stop(self) -> None:
        names = cluster_loop().names
        names.pop((self._host, self._settings.port), None)
        names.pop((self._host, self._settings.admin_port), None)
        if self.node is not None:
            await self.node.close()
        self._pool.shutdown()


class ZooKeeperPod:
    """A server of the managed ZooKeeper: what it holds is in memory, and outlives it."""

    async def start(self) -> None:
        return

    def ready(self) -> bool:
        return True

    async def stop(self) -> None:
        return


class ServerPod:
    """A server; `address` is its pod's."""

    def __init__(
        self, config: Mapping[str, object], address: str, port: int, zookeeper: Ensemble, seed: int
    ) -> None:
        dashed = address.replace(".", "-")
        template = str(config["server.advertised.host"])
        self._host = template.replace("{dashed-address}", dashed)
        self._public_port = int(str(config["server.port"]))
        self._settings = ServerSettings.from_mapping(
            {
                **{key: value for key, value in config.items() if key != "server.jetty.port"},
                "server.bind.host": "127.0.0.1",
                "server.port": port,
                "server.advertised.host": self._host,
                "server.advertised.port": self._public_port,
            },
            source=self._host,
        )
        self._zookeeper = zookeeper
        self._rng = random.Random(seed)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.server: WaltzServer | None = None

    async def start(self) -> None:
        session = await self._zookeeper.login(self._settings, _SESSION_SECONDS, self._host)
        root, rng = self._settings.cluster_root, self._rng
        tls = client_context(self._settings.tls_settings("storage.ssl"))
        store_settings = self._settings.store_settings()

        def make_backend(zookeeper: ZooKeeperStore, params: StoreParams) -> QuorumBackend:
            return QuorumBackend(
                metadata=StoreMetadata(zookeeper, root),
                params=params,
                tls=tls,
                settings=store_settings,
                rng=rng,
            )

        self.server = WaltzServer(self._settings, zookeeper=session, make_backend=make_backend, rng=rng)
        server = self.server

        async def serve() -> None:
            try:
                await server.serve(self._stop)
            finally:
                await session.close()

        cluster_loop().names[self._host, self._public_port] = self._settings.port
        self._task = spawn(serve(), f"server {self._host}")

    def ready(self) -> bool:
        """Registered, and all its partitions take appends."""
        if self.server is None or not self.server.serving.is_set():
            return False
        return all(healthy for healthy, _ in self.server.registry.health().values())

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task
        cluster_loop().names.pop((self._host, self._public_port), None)
