"""Applications that are given servers: servers and ZooKeeper are killed under load, and nothing that was
acknowledged is lost; the tools that administer nothing take the same file."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from tests.integration.processes import waltz
from tests.integration.replicas import compare_replicas
from tests.integration.test_failover import Loaded
from tests.integration.workload import Workload, check_log
from waltz_client import WaltzClient
from waltz_client.blocking import BlockingWaltzClient
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.cluster import ZOOKEEPER

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

SESSION_TIMEOUT_MS = 2_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"), partitions=4, servers=2, session_timeout_ms=SESSION_TIMEOUT_MS
    )
    async with LocalCluster(settings) as cluster:
        yield cluster


async def test_e2_kills_of_servers_and_of_zookeeper_lose_nothing(cluster: LocalCluster) -> None:
    loaded = Loaded(cluster, Workload(cluster.application_config))
    async with loaded.workload.running():
        await loaded.progresses()
        for role in ("server-1", "server-2"):
            await cluster.kill_role(role)
            await loaded.progresses()
            await cluster.start_role(role)
        await cluster.kill_role(ZOOKEEPER)
        await asyncio.sleep(0.5)
        await cluster.start_role(ZOOKEEPER)
        await loaded.progresses()
        await cluster.kill_role(ZOOKEEPER)  # for longer than a session lives
        await asyncio.sleep(2.5 * SESSION_TIMEOUT_MS / 1000)
        await cluster.start_role(ZOOKEEPER)
        await loaded.progresses()
        await cluster.kill_role("server-1")
        await loaded.progresses()
        await cluster.start_role("server-1")
    verdict = await check_log(cluster.application_config, loaded.workload.history)
    assert verdict.passed, str(verdict)
    assert len(loaded.workload.history.acknowledged) > 100
    await compare_replicas(cluster)


async def test_one_server_of_the_list_is_enough_and_the_others_are_found(cluster: LocalCluster) -> None:
    keys = yaml.safe_load(cluster.application_config.read_text())
    assert not [key for key in keys if key.startswith(("zookeeper", "cluster"))]
    one = {**keys, "servers": keys["servers"][:1]}
    async with WaltzClient.connect(one) as client:
        async with asyncio.timeout(20):
            while len(client.servers.endpoints()) < 2:
                await asyncio.sleep(0.05)
        await asyncio.gather(*(client.append(partition=number, data=b"x") for number in range(4)))

    def blocking() -> int:
        with BlockingWaltzClient.connect(one) as blocked:
            return blocked.append(partition=0, data=b"y").transaction_id

    assert await asyncio.to_thread(blocking) > 0


async def test_the_tools_that_administer_nothing_take_the_file(cluster: LocalCluster) -> None:
    config = str(cluster.application_config)
    done = await waltz("append", "-c", config, "-p", "1", "--data", "without ZooKeeper")
    assert done.code == 0, done.err
    tail = await waltz("tail", "-c", config, "-p", "1")
    assert "without ZooKeeper" in tail.out
    checked = await waltz("config", "check", config)
    assert checked.code == 0, checked.err
    refused = await waltz("cluster", "status", "-c", config)
    assert (
        "is the file of an application (it has servers); this command works in ZooKeeper"
        in refused.one_error()
    )
