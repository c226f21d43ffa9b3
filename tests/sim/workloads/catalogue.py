"""Which workloads a seed runs: a different mix each time, with about the same number of appends."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.sim.cluster.access import Workload
from tests.sim.faults.plan import DENSE, PRODUCERS
from tests.sim.workloads.bank import Bank
from tests.sim.workloads.blind import Blind
from tests.sim.workloads.closing import Closing
from tests.sim.workloads.contexts import Contexts
from tests.sim.workloads.counters import Counters
from tests.sim.workloads.crowd import Crowd
from tests.sim.workloads.databases import Databases
from tests.sim.workloads.duty import Duty
from tests.sim.workloads.feeds import Feeds
from tests.sim.workloads.producers import Producers
from tests.sim.workloads.registers import Registers


def all_workloads(partitions: int, rng: random.Random) -> list[Workload]:
    """One of each, on partitions drawn by `rng`."""

    def partition() -> int:
        return rng.randrange(partitions)

    bank = partition()
    return [
        Bank(bank, tellers=2),
        Contexts(bank, tellers=1),
        Registers(partition()),
        Counters(partition()),
        Duty(partition()),
        Blind(),
        Closing(),
        Databases(partition()),
        Feeds(),
    ]


def choose(partitions: int, rng: random.Random) -> list[Workload]:
    """Five or six of them: readers always, and some of the writers."""
    every = {workload.name: workload for workload in all_workloads(partitions, rng)}
    names = ["blind", "feeds"]
    names += rng.sample(["bank", "registers", "counters", "duty"], 2)
    names += rng.sample(["contexts", "closing", "databases"], rng.choice((1, 2, 2)))
    return [workload for name, workload in every.items() if name in names]


def choose_dense(partitions: int, rng: random.Random) -> list[Workload]:
    """The same, and a crowd."""
    return [*choose(partitions, rng), Crowd()]


def choose_producers(partitions: int, rng: random.Random) -> list[Workload]:
    """The same, and a named producer."""
    return [*choose(partitions, rng), Producers()]


def chooser(profile: str) -> Callable[[int, random.Random], list[Workload]]:
    """Who uses the cluster in the seeds of a profile."""
    return {DENSE: choose_dense, PRODUCERS: choose_producers}.get(profile, choose)
