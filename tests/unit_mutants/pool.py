"""Worker processes that try bugs, each in a thread of its own that waits for it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

from tests.sim.mutants.loader import ROOT
from tests.unit_mutants.suites import IGNORED, stages_of
from tests.unit_mutants.worker import Task, Trial

T = TypeVar("T")


class Bug(NamedTuple):
    """What is to be tried: a name for the table, and the changed text of each file."""

    name: str
    sources: dict[str, str]


class Pool:
    """`with Pool(2) as pool`: `trials` of many bugs, at most so many at the same time."""

    def __init__(self, size: int, *, nearest_only: bool = False) -> None:
        """`nearest_only`: without the stage that runs all tests of the member."""
        self._stages = 1 if nearest_only else None
        command = [sys.executable, "-m", "tests.unit_mutants.worker"]
        self._workers = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(size)
        ]
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(size)
        self._clean: dict[str, Trial] = {}
        self._clean_lock = threading.Lock()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._workers:
            worker.terminate()  # it ends the test run that is under way
            with worker:
                pass  # closes the pipes and waits
        self._threads.shutdown(cancel_futures=True)

    def trials(
        self, bugs: Iterable[Bug], wanted: Callable[[], bool] = lambda: True
    ) -> list[Future[Trial | None]]:
        """One future per bug, in their order. None: `wanted` was false when its turn came."""
        return [self._threads.submit(self._trial, bug, wanted) for bug in bugs]

    def _trial(self, bug: Bug, wanted: Callable[[], bool]) -> Trial | None:
        if not wanted():
            return None
        stages = stages_of(next(iter(bug.sources)))[: self._stages]
        trial = self._ask(Task(bug.sources, stages, list(IGNORED)))
        if "::" in trial.by:
            clean = self._without_bug(trial.by)
            if clean.by or clean.error:
                return Trial(error=f"{trial.by} fails without the bug too: {clean.text or clean.error}")
        return trial

    def _without_bug(self, test: str) -> Trial:
        """The same test on the unchanged code: a test that fails there has noticed nothing."""
        with self._clean_lock:
            known = self._clean.get(test)
        if known is None:
            known = self._ask(Task({}, [[test]], []))
            with self._clean_lock:
                self._clean[test] = known
        return known

    def _ask(self, task: Task) -> Trial:
        worker = self._idle.get()
        try:
            if worker.stdin is None or worker.stdout is None:
                raise RuntimeError("a worker without pipes")
            worker.stdin.write(json.dumps(task._asdict()) + "\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
            if not answer:
                return Trial(error="the worker process ended")
            return Trial(**json.loads(answer))
        finally:
            self._idle.put(worker)
