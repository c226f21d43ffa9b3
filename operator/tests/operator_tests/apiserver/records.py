"""Writing transactions into a cluster of the tests and reading all of them back: nothing acknowledged may be
lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from operator_tests.apiserver.processes import mount
from operator_tests.apiserver.world import NAME, World
from waltz_client.client import WaltzClient
from waltz_operator.kube import kinds


async def encrypted(world: World) -> bool:
    """Whether the cluster speaks TLS."""
    return bool((await world.cluster())["spec"]["tls"]["mode"] != "Disabled")


@asynccontextmanager
async def client(world: World) -> AsyncIterator[WaltzClient]:
    """With the certificate that the operator made for applications."""
    files = world.directory / "client"
    tls: dict[str, object] = {"client.ssl.enabled": False}
    if await encrypted(world):
        mount(files, await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-tls-client"))
        tls = {"client.ssl.keyStore.location": str(files), "client.ssl.trustStore.location": str(files)}
    settings: dict[str, object] = {
        "zookeeper.connectString": "zk:2181",
        "zookeeper.sessionTimeout": 10_000,
        "cluster.root": f"/waltz/{world.namespace}/{NAME}",
        **tls,
    }
    store = world.zookeeper.session(10.0)
    try:
        async with WaltzClient.connect(settings, store=store) as opened:
            yield opened
    finally:
        await store.close()


async def write(world: World, count: int, partitions: int) -> None:
    """Append to each partition and remember what was acknowledged."""
    async with client(world) as opened:
        for number in range(count):
            for partition in range(partitions):
                data = f"{len(world.acknowledged)}:{number}".encode()
                committed = await opened.append(partition=partition, data=data, deadline_seconds=60)
                world.acknowledged[partition, committed.transaction_id] = data


async def check(world: World) -> None:
    """Every acknowledged transaction is there, as it was written."""
    async with client(world) as opened:
        for partition in sorted({partition for partition, _ in world.acknowledged}):
            wanted = {txid: data for (held, txid), data in world.acknowledged.items() if held == partition}
            found: dict[int, bytes] = {}
            async for transaction in opened.feed(partition, until=max(wanted)):
                found[transaction.transaction_id] = bytes(transaction.data or b"")
            lost = {txid for txid, data in wanted.items() if found.get(txid) != data}
            if lost:
                raise AssertionError(f"partition {partition} lost {sorted(lost)}")
