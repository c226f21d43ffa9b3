"""Money is moved by a named producer while the application, servers and storage nodes are killed: each
transfer is in the log once, by the count of a reader that knows nothing of producers."""

import asyncio
import itertools
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.transfer_service import ACCOUNTS, FENCED, transfer
from waltz_client import WaltzClient
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.process import send_signal

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]

PARTITIONS = 2
KILLS, MANY_KILLS = 5, 50
MAX_SECONDS = 120.0
"""Until the log grows again after a kill."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"), servers=2, storage_nodes=3, partitions=PARTITIONS
    )
    async with LocalCluster(settings) as cluster:
        yield cluster


class Application:
    """The processes of the application: one, for a while two. They take the files in turn."""

    def __init__(self, configs: Sequence[Path], stop: Path) -> None:
        self._configs = itertools.cycle(configs)
        self._stop = stop
        self._running: list[asyncio.subprocess.Process] = []
        self.fenced = 0

    async def start(self) -> None:
        """One more."""
        command = (
            *(sys.executable, "-m", "tests.integration.transfer_service"),
            *(str(next(self._configs)), str(PARTITIONS), str(self._stop)),
        )
        self._running.append(await asyncio.create_subprocess_exec(*command))

    async def kill_oldest(self) -> None:
        """SIGKILL, unless the newer instance has ended it."""
        process = self._running.pop(0)
        send_signal(process, signal.SIGKILL)
        code = await process.wait()
        assert code in (-9, FENCED), "the application ended on its own"
        self.fenced += code == FENCED

    async def oldest_ends(self) -> None:
        """The newer instance ends it."""
        async with asyncio.timeout(MAX_SECONDS):
            assert await self._running[0].wait() == FENCED

    async def ended(self) -> list[int]:
        """Exit codes, when all have ended."""
        return [await process.wait() for process in self._running]

    async def end(self) -> None:
        """SIGKILL for all that run."""
        for process in self._running:
            send_signal(process, signal.SIGKILL)
            await process.wait()


async def _marks(client: WaltzClient) -> list[int]:
    return [await client.high_water_mark(partition, deadline_seconds=60) for partition in range(PARTITIONS)]


async def _grows(client: WaltzClient) -> None:
    """Until each partition has more transactions than now."""
    before = await _marks(client)
    async with asyncio.timeout(MAX_SECONDS):
        while any(now <= then for now, then in zip(await _marks(client), before, strict=True)):
            await asyncio.sleep(0.05)


async def _transfers_under_kills(
    cluster: LocalCluster, configs: Sequence[Path], stop: Path, kills: int
) -> Application:
    application, rng = Application(configs, stop), random.Random(kills)
    try:
        async with WaltzClient.connect(cluster.client_config) as observer:
            await application.start()
            await _grows(observer)
            for number in range(kills):
                await asyncio.sleep(rng.uniform(0, 0.3))
                match ("application", "server", "overlap", "storage")[number % 4]:
                    case "application":
                        await application.kill_oldest()
                        await application.start()
                    case "overlap":
                        await application.start()
                        if number % 8 == 2:
                            await application.oldest_ends()
                        else:
                            await asyncio.sleep(rng.uniform(0, 3))
                        await application.kill_oldest()
                    case role:
                        roles = cluster.server_roles if role == "server" else cluster.storage_roles
                        chosen = rng.choice(roles)
                        await cluster.kill_role(chosen)
                        await asyncio.sleep(rng.uniform(0, 1))
                        await cluster.start_role(chosen)
                await _grows(observer)
        stop.touch()
        async with asyncio.timeout(MAX_SECONDS):
            assert await application.ended() == [0]
    finally:
        await application.end()
    return application


async def _check_the_log(config: Path) -> int:
    """By what the transactions say, and nothing else; how many there are."""
    events: list[list[int]] = [[] for _ in range(PARTITIONS)]
    balances: Counter[int] = Counter()
    async with WaltzClient.connect(config) as client:
        until = dict(enumerate(await _marks(client)))
        async for one in client.feed(until, after=-1, until=until):
            content = json.loads(one.data or b"")
            assert one.data == transfer(one.partition_id, content["event"])
            events[one.partition_id].append(content["event"])
            balances[content["from"]] -= content["amount"]
            balances[content["to"]] += content["amount"]
    expected: Counter[int] = Counter()
    for partition, found in enumerate(events):
        assert sorted(found) == list(range(len(found))), "a transfer is missing, or there twice"
        for number in range(len(found)):
            content = json.loads(transfer(partition, number))
            expected[content["from"]] -= content["amount"]
            expected[content["to"]] += content["amount"]
    assert [balances[account] for account in range(ACCOUNTS)] == [expected[n] for n in range(ACCOUNTS)]
    return sum(map(len, events))


@pytest.mark.parametrize(
    ("ways", "kills"),
    [
        (("zookeeper",), KILLS),
        (("servers", "zookeeper"), KILLS),
        pytest.param(("zookeeper",), MANY_KILLS, marks=pytest.mark.long),
        pytest.param(("servers", "servers", "zookeeper"), MANY_KILLS, marks=pytest.mark.long),
    ],
)
async def test_safety_e8_each_transfer_is_in_the_log_once(
    cluster: LocalCluster, tmp_path: Path, ways: Sequence[str], kills: int
) -> None:
    """`ways`: how the processes of the application, one after another, find the cluster."""
    files = {"zookeeper": cluster.client_config, "servers": cluster.application_config}
    application = await _transfers_under_kills(
        cluster, [files[way] for way in ways], tmp_path / "stop", kills
    )
    count = await _check_the_log(cluster.client_config)
    assert count > kills
    assert application.fenced
    print(f"{count} transfers, {kills} kills, {application.fenced} instances ended by a newer one")
