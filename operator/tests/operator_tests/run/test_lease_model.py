"""Instances on bad roads and with clocks that disagree: never do two of them write, whatever is slow, lost,
repeated or released."""

from __future__ import annotations

import asyncio
import random
from itertools import product

import pytest

from operator_tests.run.lease_server import LeaseServer, Road, Trip, instance
from waltz_operator.run.lease import LeaseLostError, LeaseTimes, OperatorLease
from waltz_protocol.aio.tasks import spawn

pytestmark = pytest.mark.looptime

WRITE_SECONDS = LeaseTimes().write_seconds
WAITS = (0.0, 3.0, 9.0)
"""Seconds of a call that is slow; the longest ones together pass its deadline."""


class Writers:
    """Who writes when. A write takes as long as it may."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self.terms: list[str] = []

    def write(self, who: str) -> None:
        now = asyncio.get_running_loop().time()
        for other, end in self._ends.items():
            assert other == who or end <= now, (
                f"{who} writes at {now}, a write of {other} may last until {end}"
            )
        self._ends[who] = now + WRITE_SECONDS
        if self.terms[-1:] != [who]:
            self.terms.append(who)


async def live(name: str, road: Road, writers: Writers, rng: random.Random) -> None:
    """An operator: takes the Lease, writes while it may, ends when it is lost or its time has come, and
    starts anew as another one."""
    number = 0
    while True:
        number += 1
        skew = rng.uniform(-1e6, 1e6)
        lease = instance(road, f"{name}{number}", lambda skew=skew: 1e9 + skew)  # type: ignore[misc]
        await lease.acquire()
        keeping = spawn(lease.run(), name="lease")
        try:
            await _work(lease, f"{name}{number}", writers, rng)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
        await asyncio.sleep(rng.uniform(0, 5))


async def _work(lease: OperatorLease, who: str, writers: Writers, rng: random.Random) -> None:
    end = asyncio.get_running_loop().time() + rng.expovariate(1 / 120)
    while not lease.lost.is_set():
        try:
            lease.check()
        except LeaseLostError:
            pass
        else:
            writers.write(who)
        if asyncio.get_running_loop().time() > end:
            if rng.random() < 0.5:
                await asyncio.sleep(WRITE_SECONDS)  # its writes are done; then it gives the Lease back
                await lease.release()
            return
        await asyncio.sleep(rng.uniform(0.5, 3.0))


async def play(roads: list[Road], rng: random.Random, seconds: float) -> Writers:
    """All live for that long; the writers that there were."""
    writers = Writers()
    tasks = [spawn(live(f"op{n}-", road, writers, rng), name=f"op{n}") for n, road in enumerate(roads)]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    return writers


@pytest.mark.parametrize("seed", range(10))
async def test_two_never_write_at_a_time_on_roads_that_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    server = LeaseServer()
    roads = [Road(server) for _ in range(2 + seed % 2)]
    for road in roads:
        weather = [0.0]

        def trip(weather: list[float] = weather) -> Trip:
            if rng.random() < 0.1:
                weather[0] = rng.choice((0.0, 0.0, 0.5, 1.0))
            bad = weather[0]
            return Trip(
                rng.choice(WAITS) if rng.random() < bad else 0.01,
                rng.choice(WAITS) if rng.random() < bad else 0.01,
                rng.random() >= bad / 2,
                rng.random() >= bad / 2,
            )

        road.next_trip = trip
    writers = await play(roads, rng, 1500.0)
    assert len(writers.terms) >= 4, "hardly anybody ever wrote"


@pytest.mark.parametrize("seed", range(6))
async def test_two_never_write_at_a_time_when_somebody_deletes_the_object(seed: int) -> None:
    """Again and again, on good roads and on bad ones."""
    rng = random.Random(seed)
    server = LeaseServer()
    roads = [Road(server) for _ in range(2 + seed % 2)]
    for road in roads:
        bad = 0.3 if seed > 2 else 0.0

        def trip(bad: float = bad) -> Trip:
            slow = rng.choice(WAITS) if rng.random() < bad else 0.01
            return Trip(slow, 0.01, rng.random() >= bad / 2, rng.random() >= bad / 2)

        road.next_trip = trip

    async def person() -> None:
        while True:
            await asyncio.sleep(rng.uniform(60, 120))
            server.lease = None

    deleting = spawn(person(), name="person")
    try:
        writers = await play(roads, rng, 1500.0)
    finally:
        deleting.cancel()
        await asyncio.wait([deleting])
    assert len(writers.terms) >= 8, "hardly anybody ever wrote"


@pytest.mark.parametrize(
    ("there", "back", "asks", "answers"), list(product(WAITS, WAITS, (True, False), (True, False)))
)
async def test_two_never_write_at_a_time_when_the_holders_road_turns_bad(
    there: float, back: float, asks: bool, answers: bool
) -> None:
    """Every kind of bad road, from the moment on at which the first one has the Lease; the second one's is
    good."""
    server = LeaseServer()
    roads = [Road(server), Road(server)]
    start = asyncio.get_running_loop().time()

    def trip() -> Trip:
        turned = asyncio.get_running_loop().time() - start > 30
        return Trip(there, back, asks, answers) if turned else Trip(0.01, 0.01)

    roads[0].next_trip = trip
    await play(roads, random.Random(1), 400.0)
