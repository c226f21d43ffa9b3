"""Staged faults: the right finding is on the console's page, and its next step repairs the cluster."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar

from tests.integration.processes import waltz
from waltz_client import WaltzClient
from waltz_tools.console.run import link, serving
from waltz_tools.console.settings import ConsoleSettings, new_token
from waltz_tools.local import LocalCluster, LocalSettings

SECONDS = 60.0

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


@dataclass
class Watched:
    """A cluster of three storage nodes, two servers and two partitions, and a session of its console."""

    cluster: LocalCluster
    session: ClientSession

    async def ask(self, page: str) -> dict[str, Any]:
        async with self.session.get(f"/api/{page}") as answer:
            found = await answer.json()
            return found if isinstance(found, dict) else {}

    async def until(self, *rules: str) -> list[dict[str, Any]]:
        """Until exactly these rules have findings."""
        found: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    found = (await self.ask("findings")).get("rows", [])
                    if {one["rule"] for one in found} == set(rules):
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"wanted {rules}, found {found}") from None

    async def waltz(self, *arguments: str) -> None:
        """One command that succeeds."""
        done = await waltz(*arguments, "-c", str(self.cluster.client_config))
        assert done.code == 0, done


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Watched]:
    settings = LocalSettings(directory, storage_nodes=3, servers=2, partitions=2, tls=False)
    async with LocalCluster(settings) as cluster:
        async with WaltzClient.connect(cluster.client_config) as client:
            for partition in (0, 1, 0, 1):
                await client.append(partition=partition, data=b"x")
        console = ConsoleSettings(new_token(), port=0, interval_seconds=0.5)
        async with serving(cluster.client_config, console) as bound:
            address = link(bound, with_token=False)
            async with ClientSession(address, cookie_jar=CookieJar(unsafe=True)) as session:
                origin = {"Origin": address.rstrip("/")}
                await session.post("/api/login", json={"token": bound.token}, headers=origin)
                yield Watched(cluster, session)


async def one_node_is_killed(w: Watched) -> None:
    await w.cluster.kill_role("storage-2")
    (found,) = await w.until("node-silent")
    assert "restart it with its data" in found["next_step"]
    await w.cluster.start_role("storage-2")


async def two_nodes_are_killed(w: Watched) -> None:
    for role in ("storage-1", "storage-2"):
        await w.cluster.kill_role(role)
    found = await w.until("no-quorum", "node-silent")
    assert "with the data they have" in found[0]["next_step"]
    page = await w.ask("partitions/0")
    assert page["takes_writes"] is False
    assert [one["votes"] for one in page["replicas"]].count(True) == 1
    for role in ("storage-1", "storage-2"):
        await w.cluster.start_role(role)


async def all_servers_are_killed(w: Watched) -> None:
    """They stay registered for the ZooKeeper session, and then nobody has the partitions."""
    for role in ("server-1", "server-2"):
        await w.cluster.kill_role(role)
    found = await w.until("no-server", "no-owner")
    assert all("start a server" in one["next_step"] for one in found)
    for role in ("server-1", "server-2"):
        await w.cluster.start_role(role)


async def a_copy_is_switched_off(w: Watched) -> None:
    admin = str(w.cluster.admin_endpoint("storage-3"))
    await w.waltz("storage", "availability", "-s", admin, "-p", "0", "-o", "false")
    (found,) = await w.until("replica-unavailable")
    assert "waltz" in found["next_step"]
    assert " storage availability -p 0 -o true" in found["next_step"]
    await w.waltz("storage", "availability", "-s", admin, "-p", "0", "-o", "true")


async def a_copy_is_not_on_its_node(w: Watched) -> None:
    """An empty disk: its partitions are not there until they are assigned, and then they are refilled."""
    await w.cluster.stop_role("storage-1")
    shutil.rmtree(w.cluster.storage_directory("storage-1"))
    w.cluster.storage_directory("storage-1").mkdir()
    await w.cluster.start_role("storage-1")
    (found,) = await w.until("replica-unassigned")
    assert "storage sync-partitions" in found["next_step"]
    await w.waltz("storage", "sync-partitions")
    async with WaltzClient.connect(w.cluster.client_config) as client:
        for partition in (0, 1):
            await client.append(partition=partition, data=b"refills it", deadline_seconds=60)


STAGED: tuple[Callable[[Watched], Awaitable[None]], ...] = (
    one_node_is_killed,
    two_nodes_are_killed,
    all_servers_are_killed,
    a_copy_is_switched_off,
    a_copy_is_not_on_its_node,
)


async def test_each_fault_is_found_and_its_next_step_repairs_it(tmp_path: Path) -> None:
    async with watched(tmp_path) as w:
        await w.until()
        for fault in STAGED:
            await fault(w)
            await w.until()
        assert (await w.ask("overview"))["partitions"] == {"all": 2, "closed": 0, "reduced": 0}
        texts = [one["text"] for one in (await w.ask("changes"))["log"]]
        assert any("no writes" in text for text in texts)
        assert any("takes writes again" in text for text in texts)
