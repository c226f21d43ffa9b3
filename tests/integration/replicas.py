"""Looks at a cluster from its administrator's side: is everybody caught up, are all replicas equal."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz_admin.storage_admin import admin_connection
from waltz_admin.verify import verify_cluster
from waltz_cluster import zk_client
from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.settings import CliSettings
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint, Record
from waltz_tools.local import LocalCluster

_BATCH = 500


class Administrator:
    """One ZooKeeper session and the settings that go with it."""

    def __init__(self, store: ZooKeeperStore, root: str, tls: TlsSettings) -> None:
        self.store = store
        self.root = root
        self.tls = tls

    async def wait_complete(self, timeout_seconds: float = 90) -> float:
        """Wait until `verify` passes: every replica in the current session, unresolved; the seconds it took."""
        started = time.monotonic()
        failures: tuple[object, ...] = ()
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    report = await verify_cluster(self.store, self.root, tls=self.tls, timeout_seconds=5)
                    if report.passed:
                        return time.monotonic() - started
                    failures = report.failures
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"not complete after {timeout_seconds} s: {failures[:3]}") from None

    async def replicas_of(self, partition: int) -> list[str]:
        metadata, _version = await StoreMetadata(self.store, self.root).read_partition(partition)
        return [] if metadata is None else sorted(metadata.replicas)


@asynccontextmanager
async def administrator(cluster: LocalCluster) -> AsyncIterator[Administrator]:
    settings = CliSettings.from_file(cluster.client_config)
    store = await zk_client.connect(settings)
    try:
        yield Administrator(store, settings.cluster_root, settings.tls_settings("ssl"))
    finally:
        await store.close()


async def compare_replicas(cluster: LocalCluster) -> int:
    """Read every record of every replica and compare them record by record; the number of records per replica.

    Records above the shortest replica are uncommitted or on their way and are compared up to there only; call it at rest.
    """
    async with administrator(cluster) as admin:
        _cluster_params, params = await read_params(admin.store, admin.root)
        total = 0
        for partition in range(params.num_partitions):
            logs = {}
            for role in cluster.storage_roles:
                endpoint: Endpoint = cluster.admin_endpoint(role)
                async with admin_connection(endpoint, params, admin.tls) as connection:
                    logs[role] = await _read_log(connection, partition)
            first_role, first = next(iter(logs.items()))
            for role, log in logs.items():
                if log != first:
                    raise AssertionError(
                        f"partition {partition}: {role} ({len(log)}) differs from {first_role} ({len(first)})"
                    )
            total += len(first)
        return total


async def _read_log(connection: object, partition: int) -> list[Record]:
    records: list[Record] = []
    while True:
        batch = await connection.record_list(partition, len(records), _BATCH)  # type: ignore[attr-defined]
        if not batch:
            return records
        records += batch
