"""When the console asks the cluster, where somebody waits for the answer."""

import asyncio
from collections.abc import Sequence

import pytest

from tools_tests.console_rig import cluster
from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.reports import LATENCY, LOCKS, ServerReport
from waltz_protocol.types import Endpoint
from waltz_tools.console.collector import MAX_REST_SECONDS, Collector

OBSERVING_SECONDS = 1.0


class Slow:
    """A cluster that is so much work that the console rests for as long as it ever does."""

    def __init__(self) -> None:
        self.work = 0.0
        self.parts: list[int] = []
        self.begun: list[float] = []
        loop = asyncio.get_running_loop()
        self.collector = Collector(
            self.observe,
            interval_seconds=2.0,
            clock=loop.time,
            wall_clock=loop.time,
            work_clock=lambda: self.work,
            report=self.report,
        )

    async def observe(self) -> ClusterStatus:
        self.begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(OBSERVING_SECONDS)
        self.work += 2 * MAX_REST_SECONDS
        return cluster(1)

    async def report(self, servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        self.parts.append(parts)
        return []

    async def until_it_observes(self, times: int) -> None:
        while len(self.begun) < times:
            self.collector.watch()
            await asyncio.sleep(0.1)


@pytest.mark.looptime
async def test_who_opens_a_page_during_an_observation_does_not_wait_for_the_rest_after_it() -> None:
    """That observation does not ask for the locks: the page waited 20 s, and showed none then."""
    slow, loop = Slow(), asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(slow.collector.run())
        await slow.until_it_observes(2)
        began = loop.time()
        seen = await slow.collector.fresh(20.0, LOCKS)
        assert seen is not None
        assert seen.parts & LOCKS
        assert loop.time() - began <= 2 * OBSERVING_SECONDS
        task.cancel()
    assert slow.parts == [LATENCY, LATENCY | LOCKS]


@pytest.mark.looptime
async def test_who_waits_for_the_observation_that_has_begun_asks_for_no_further_one() -> None:
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(slow.collector.run())
        await slow.until_it_observes(1)
        assert await slow.collector.fresh(20.0) is not None
        await asyncio.sleep(MAX_REST_SECONDS - 1)
        assert len(slow.begun) == 1
        task.cancel()
