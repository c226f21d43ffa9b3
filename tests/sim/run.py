"""Running seeds: one, or many on worker processes."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.sim.cluster.result import Result
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import TooSlowError, collect_remains
from tests.sim.kernel.trace import Trace
from tests.sim.workloads.catalogue import chooser

CPU_LIMIT_SECONDS = 90
"""A seed that computes for longer hangs in a way that virtual time does not show."""
SILENCE_SECONDS = 600
SEEDS_PER_WORKER = 40
"""A worker is replaced after that many seeds, which bounds its memory."""


def run_seed(
    seed: int,
    choice: Choice,
    trace_path: Path | None = None,
    limit: AbstractContextManager[None] | None = None,
) -> Result:
    """Run one seed; what goes wrong is in the result. `limit`: entered for the time of the run, not of the
    collection."""
    start = time.perf_counter()
    with nullcontext() if trace_path is None else trace_path.open("w", encoding="utf-8") as sink:
        worlds = [World(seed, choice, chooser(choice.profile), Trace(sink))]
        with limit or nullcontext():
            result = worlds[0].run()
    collect_remains(worlds)
    result.wall_seconds = time.perf_counter() - start
    return result


@contextmanager
def _computing_limit() -> Iterator[None]:
    """TooSlowError, wherever the seed is, after CPU_LIMIT_SECONDS."""

    def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TooSlowError(f"more than {CPU_LIMIT_SECONDS} s of computing")

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limited(choice: Choice, seed: int) -> Result:
    """In a worker: every seed ends."""
    try:
        return run_seed(seed, choice, limit=_computing_limit())
    finally:
        gc.freeze()  # what is left are caches


def _freeze() -> None:
    """In a worker, at its start: modules are no garbage, collections need not look at them."""
    gc.collect()
    gc.freeze()


def run_many(seeds: Iterable[int], choice: Choice, workers: int) -> Iterator[Result]:
    """Run seeds on `workers` processes and give their results as they come. TimeoutError when no worker
    gets any further."""
    wanted = list(seeds)
    # Not ProcessPoolExecutor: when its workers reach their last task at the same time, Python 3.11 does not
    # replace them.
    with multiprocessing.get_context("spawn").Pool(
        workers, initializer=_freeze, maxtasksperchild=SEEDS_PER_WORKER
    ) as pool:
        results = pool.imap_unordered(partial(_limited, choice), wanted)
        for _ in wanted:
            try:
                yield results.next(SILENCE_SECONDS)
            except multiprocessing.TimeoutError:
                raise TimeoutError(f"no seed ended for {SILENCE_SECONDS} s: a worker has died") from None
