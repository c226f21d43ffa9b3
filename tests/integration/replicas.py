"""Looks at a cluster from its administrator's side: is everybody caught up, are all replicas equal."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz_admin.storage_admin import admin_connection
from waltz_admin.verify import verify_cluster
from waltz_cluster import zk_client
from waltz_cluster.cluster_params import read_params
from waltz_cluster.config.settings import CliSettings
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Record
from waltz_tools.local import LocalCluster

_BATCH = 500


class Administrator:
    """One ZooKeeper session and the settings that go with it."""

    def __init__(self, store: ZooKeeperStore, root: str, tls: TlsSettings) -> None:
        self.store = store
        self.root = root
        self.tls = tls

    async def wait_complete(self, timeout_seconds: float = 90) -> float:
        """Wait until `verify` passes: every replica in the current session, unresolved; the seconds it
        took."""
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


async def compare_replicas(cluster: LocalCluster, timeout_seconds: float = 20) -> int:
    """Read every record of every replica and compare them record by record; the number of records per
    replica.

    Call it at rest: nobody writes. A commit needs only a majority, so the others get `timeout_seconds` to
    follow.
    """
    async with administrator(cluster) as admin:
        _cluster_params, params = await read_params(admin.store, admin.root)
        total = 0
        for partition in range(params.num_partitions):
            deadline = time.monotonic() + timeout_seconds
            while True:
                logs = {
                    role: await _read_log(cluster, admin, params, role, partition)
                    for role in cluster.storage_roles
                }
                first, *others = logs.values()
                if all(log == first for log in others):
                    break
                if time.monotonic() > deadline:
                    lengths = {role: len(log) for role, log in logs.items()}
                    raise AssertionError(f"partition {partition}: replicas differ, records {lengths}")
                await asyncio.sleep(0.2)
            total += len(first)
        return total


async def _read_log(
    cluster: LocalCluster, admin: Administrator, params: StoreParams, role: str, partition: int
) -> list[Record]:
    records: list[Record] = []
    async with admin_connection(cluster.admin_endpoint(role), params, admin.tls) as connection:
        while batch := await connection.record_list(partition, len(records), _BATCH):
            records += batch
    return records
