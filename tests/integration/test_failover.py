"""Each role is killed, stopped in order and frozen, under load: nothing acknowledged is lost, and it
continues on its own.

How fast it continues is measured by the bench; the bound here is generous. One cluster serves all tests, one
after another.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.integration.replicas import administrator, compare_replicas
from tests.integration.workload import Workload, check_log
from waltz_client import LockConflictError, LockId, WaltzClient
from waltz_tools.cli.common import parse_partitions
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get_json

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

SESSION_TIMEOUT_MS = 2_000
PROGRESS_SECONDS = 30.0
"""Session timeout, recovery and back-off of everybody together stay far below this, also on a busy
machine."""


@dataclass
class Loaded:
    """A cluster and the load on it."""

    cluster: LocalCluster
    workload: Workload

    async def progresses(self, seconds: float = PROGRESS_SECONDS) -> None:
        """Until every partition has acknowledged a transaction sent from now on (two each, the first may be
        older)."""
        history = self.workload.history
        before = len(history.acknowledged)
        wanted = set(range(self.cluster.state.partitions))
        async with asyncio.timeout(seconds):
            while True:
                new = [partition for partition, _ in list(history.acknowledged.values())[before:]]
                if all(new.count(partition) > self.workload.in_flight for partition in wanted):
                    return
                await asyncio.sleep(0.02)

    async def stands_still(self, seconds: float) -> None:
        """Nothing is acknowledged for some seconds."""
        before = len(self.workload.history.acknowledged)
        await asyncio.sleep(seconds)
        assert len(self.workload.history.acknowledged) == before

    async def health(self, role: str) -> tuple[int, dict[str, object]]:
        status, body = await get_json(self.cluster.port(role, "http"), "/health")
        report = body.get("server-health-check")
        return status, report if isinstance(report, dict) else {}

    async def until_health(
        self, role: str, wanted: int, seconds: float = PROGRESS_SECONDS
    ) -> dict[str, object]:
        """Until a server's health page answers with a status; the report."""
        seen: tuple[int, dict[str, object]] = (0, {})
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            seen = await self.health(role)
            if seen[0] == wanted:
                return seen[1]
            await asyncio.sleep(0.05)
        raise AssertionError(f"{role} says {seen}, expected {wanted}")

    async def every_server_serves(self) -> None:
        """Until each server owns a partition and all partitions are served."""
        async with asyncio.timeout(PROGRESS_SECONDS):
            while True:
                served = []
                for role in self.cluster.server_roles:
                    report = await self.until_health(role, 200)
                    partitions = report["partitions"]
                    assert isinstance(partitions, dict)
                    served.append(sum(len(parse_partitions(ids)) for ids, ok in partitions.items() if ok))
                if all(served) and sum(served) == self.cluster.state.partitions:
                    return
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loaded]:
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"),
        partitions=2,
        tls=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        stop_timeout_seconds=30.0,
    )
    async with LocalCluster(settings) as cluster:
        yield Loaded(cluster, Workload(cluster.client_config, writers=2))
        assert cluster.unexpected_ends() == []
        assert await compare_replicas(cluster) > 0


@pytest_asyncio.fixture(loop_scope="module")
async def load(loaded: Loaded) -> AsyncIterator[Loaded]:
    """The load, running; after the test everybody must be caught up and the log must agree."""
    async with loaded.workload.running() as history:
        await loaded.progresses()
        yield loaded
        async with administrator(loaded.cluster) as admin:
            await admin.wait_complete(PROGRESS_SECONDS)
        await loaded.progresses()
    verdict = await check_log(loaded.cluster.client_config, history)
    assert verdict.passed, str(verdict)


Disturbance = Callable[[LocalCluster, str], Awaitable[None]]


async def _sigkill(cluster: LocalCluster, role: str) -> None:
    await cluster.kill_role(role)


async def _sigterm(cluster: LocalCluster, role: str) -> None:
    assert await cluster.stop_role(role), f"{role} did not stop after SIGTERM"


@pytest.mark.parametrize("end", [_sigkill, _sigterm], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("role", ["storage-1", "server-1"])
async def test_writes_go_on_without_a_process_and_it_comes_back(
    role: str, end: Disturbance, load: Loaded
) -> None:
    await end(load.cluster, role)
    await load.progresses()
    await load.cluster.start_role(role)
    await load.progresses()


@pytest.mark.parametrize("role", ["storage-1", "server-1"])
async def test_writes_go_on_while_a_process_is_frozen(role: str, load: Loaded) -> None:
    """SIGSTOP: its connections stay open, and nobody answers. A server thaws into a lost session, and must
    not write."""
    load.cluster.pause_role(role)
    try:
        await load.progresses()
    finally:
        load.cluster.resume_role(role)
    await load.progresses()


@pytest.mark.parametrize("end", [_sigkill, _sigterm], ids=["SIGKILL", "SIGTERM"])
async def test_zookeeper_comes_back_and_writes_go_on(end: Disturbance, load: Loaded) -> None:
    await end(load.cluster, "zookeeper")
    await load.cluster.start_role("zookeeper")
    await load.progresses()


async def test_safety_d8_half_open_zookeeper_closes_partitions_and_they_come_back(load: Loaded) -> None:
    """ZooKeeper is frozen for longer than the session timeout: nobody informs the servers that their sessions
    are gone."""
    load.cluster.pause_role("zookeeper")
    try:
        await asyncio.sleep(1.5 * SESSION_TIMEOUT_MS / 1000)
        await load.stands_still(1.0)
        for role in load.cluster.server_roles:
            _, report = await load.health(role)
            served = report["partitions"]
            assert isinstance(served, dict)
            assert True not in served.values(), report
    finally:
        load.cluster.resume_role("zookeeper")
    await load.progresses()
    for role in load.cluster.server_roles:
        report = await load.until_health(role, 200)
        assert (report["healthy"], report["zookeeper"]) == (True, True)


async def test_health_tells_the_truth_about_a_lost_quorum(load: Loaded) -> None:
    """Two of three storage nodes are gone: no acknowledgement, 500 with a reason per partition; back to 200
    with one."""
    for role in load.cluster.server_roles:
        await load.until_health(role, 200)
    gone = ["storage-2", "storage-3"]
    for role in gone:
        await load.cluster.kill_role(role)
    names = [str(load.cluster.storage_endpoint(role)) for role in gone]
    unhealthy: dict[str, str] = {}
    async with asyncio.timeout(PROGRESS_SECONDS):
        while len(unhealthy) < 2 or not all(
            name in reason for reason in unhealthy.values() for name in names
        ):
            for role in load.cluster.server_roles:
                report = await load.until_health(role, 500)
                assert (report["healthy"], report["zookeeper"]) == (False, True)
                unhealthy |= _reasons(report)
            await asyncio.sleep(0.05)
    assert set(unhealthy) == {"0", "1"}
    await load.stands_still(1.0)
    await load.cluster.start_role("storage-2")
    await load.progresses()
    for role in load.cluster.server_roles:
        report = await load.until_health(role, 200)
        assert "reasons" not in report
    await load.cluster.start_role("storage-3")


def _reasons(report: dict[str, object]) -> dict[str, str]:
    """Why which partition is not healthy, by the partition's number."""
    reasons = report["reasons"]
    assert isinstance(reasons, dict)
    return {str(one): str(reason) for ids, reason in reasons.items() for one in parse_partitions(ids)}


async def test_a_planned_restart_refuses_nobody_whose_locks_nothing_has_touched(loaded: Loaded) -> None:
    """The tables have to come within a limit that a busy machine may exceed, so one round of five has to be
    without a conflict; without tables none is."""
    cluster, partitions = loaded.cluster, loaded.cluster.state.partitions
    done, refused = 0, 0
    rounds: list[int] = []
    async with WaltzClient.connect(str(cluster.client_config)) as client, asyncio.TaskGroup() as tasks:

        async def write(partition: int, number: int, stop: asyncio.Event) -> None:
            """Nobody else takes this lock, so a view of the last own append is never too old."""
            nonlocal done, refused
            lock, view = LockId("own", number), await client.high_water_mark(partition)
            while not stop.is_set():
                try:
                    appended = await client.append(
                        partition=partition, data=b"x", write_locks=[lock], as_of=view, deadline_seconds=30.0
                    )
                except LockConflictError:
                    refused, view = refused + 1, await client.high_water_mark(partition)
                else:
                    view, done = appended.transaction_id, done + 1

        stop = asyncio.Event()
        for number in range(4 * partitions):
            tasks.create_task(write(number % partitions, number, stop))
        while 0 not in rounds and len(rounds) < 5:
            refused = 0
            for role in ("server-1", "server-2"):
                await loaded.every_server_serves()
                before = done
                async with asyncio.timeout(PROGRESS_SECONDS):
                    while done < before + 200:
                        await asyncio.sleep(0.02)
                assert await cluster.stop_role(role)
                await cluster.start_role(role)
            await loaded.every_server_serves()
            rounds.append(refused)
        stop.set()
    assert 0 in rounds, rounds
