"""When a workload does something: random pauses that end with the run, often at a moment when others act,
too."""

from __future__ import annotations

import asyncio
import random

from tests.sim.cluster.access import MEETING_SECONDS, ClusterAccess

MAX_PAUSE_SECONDS = 12.0
CALM = 3.8
"""All pauses are that much longer than their workload asks for: a seed costs what its transactions cost, and
many seeds find more than busy ones. Chosen so that one core runs a seed in about 0.6 s (docs/testing.md)."""


async def pause(access: ClusterAccess, rng: random.Random, mean_seconds: float) -> bool:
    """Wait about this long; False when the workloads are over."""
    if not access.stopping.is_set():
        await asyncio.sleep(min(rng.expovariate(1 / (CALM * mean_seconds)), MAX_PAUSE_SECONDS))
    return not access.stopping.is_set()


async def meet(access: ClusterAccess, rng: random.Random, mean_seconds: float) -> bool:
    """Like `pause`, often until a moment when the rivals come too."""
    goes_on = await pause(access, rng, mean_seconds)
    if goes_on and rng.random() < 0.5:
        await asyncio.sleep(MEETING_SECONDS - access.time() % MEETING_SECONDS)
    return goes_on


async def think(rng: random.Random) -> None:
    """The time between a decision and its append: the view grows old, now and then old enough for a change of
    owners."""
    chance = rng.random()
    if chance < 0.05:
        await asyncio.sleep(rng.uniform(3.0, 10.0))
    elif chance < 0.5:
        await asyncio.sleep(rng.choice((0.001, 0.02, 0.3)))
