"""The process that tries bugs: one fork per bug and stage, because a bug has to be there before the product
is imported.

Reads one `Task` per line (JSON) and answers each with one `Trial` per line. What every test run needs and no
bug touches is imported once, before the first fork. A fork is ended, with everything it started, when it has
used its seconds.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests.sim.mutants.loader import ROOT, PatchError, plant_sources

PRELOADED = (
    "asyncio", "hypothesis", "hypothesis.strategies", "logging.config", "pytest", "_pytest.pytester", "pytest_asyncio.plugin",
    "pytest_cov.plugin", "pytest_timeout", "ssl", "structlog", "xdist.plugin", "yaml",
)  # fmt: skip
TEST_CPU_SECONDS = 30.0
"""What one test may take of the processor: a loop that never ends is noticed by this, on a busy machine
too."""
CPU_SECONDS = 240
"""The same for a whole run."""
TEST_SECONDS = 150
"""What one test may take by the clock: one that waits for something that never comes."""
WALL_SECONDS = 3600


class Task(NamedTuple):
    """Changed files (path -> text), and the stages: lists of test files or directories, tried in order."""

    sources: dict[str, str]
    stages: list[list[str]]
    ignored: list[str]


class Trial(NamedTuple):
    """`by`: the test that failed, or how else it ended; empty: no test noticed anything. `error`: it
    could not be tried."""

    by: str = ""
    stage: int = -1
    text: str = ""
    error: str = ""


class Watcher:
    """A plug-in that notes the first failure, and ends the process when a test takes too much of the
    processor."""

    def __init__(self) -> None:
        self.by = self.text = ""
        self.passed = 0

    def note(self, report: object) -> None:
        """A report of pytest, of whatever kind."""
        if getattr(report, "failed", False) and not self.by:
            self.by = str(getattr(report, "nodeid", "")) or "collection"
            crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
            self.text = str(getattr(crash, "message", "") or getattr(report, "longrepr", ""))[:300]

    def pytest_runtest_logstart(self) -> None:
        """Its time begins."""
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_SECONDS)

    def pytest_runtest_logfinish(self) -> None:
        """Its time is over."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Set-up, call and tear-down of every test."""
        self.passed += bool(getattr(report, "passed", False))
        self.note(report)

    def pytest_collectreport(self, report: object) -> None:
        """Modules that cannot be imported."""
        self.note(report)


def main() -> int:
    """Until the end of standard input, or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(try_one(Task(**json.loads(line)))._asdict()), flush=True)
    return 0


def try_one(task: Task) -> Trial:
    """Stage after stage until one notices it."""
    for number, stage in enumerate(task.stages):
        trial = _forked(task.sources, stage, task.ignored)
        if trial.by or trial.error:
            return trial._replace(stage=number)
    return Trial()


def _forked(sources: dict[str, str], paths: list[str], ignored: list[str]) -> Trial:
    scratch = Path(tempfile.mkdtemp(prefix="unit-mutants-"))
    try:
        pid = os.fork()
        if pid == 0:
            _run_tests(sources, paths, ignored, scratch)
        try:
            os.setpgid(pid, pid)  # here too: whoever comes first
        except (PermissionError, ProcessLookupError):
            pass
        code = _wait(pid)
        result = scratch / "result"
        if result.exists():
            return Trial(**json.loads(result.read_text()))
        if code in (-signal.SIGXCPU, -signal.SIGPROF, None):
            return Trial(by="the time limit")
        said = (scratch / "said").read_text(errors="replace").strip()[-600:]
        return Trial(by=f"the process ended with {code}", text=said)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _wait(pid: int) -> int | None:
    """The exit code (negative: the signal), None when it took too long. Nothing that it started is left."""
    deadline = time.monotonic() + WALL_SECONDS
    ended = 0
    try:
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            time.sleep(0 if ended else 0.02)
        return os.waitstatus_to_exitcode(status) if ended else None
    finally:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the usual case: it has ended and left nobody behind
        if not ended:
            os.waitpid(pid, 0)


def _run_tests(sources: dict[str, str], paths: list[str], ignored: list[str], scratch: Path) -> NoReturn:
    """The forked process: plant, run pytest, write the result, end without any of the parent's endings."""
    trial = Trial(error="the test run did not come to its end")
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        said = os.open(scratch / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        trial = _tried(sources, paths, ignored, scratch)
    except PatchError as error:
        trial = Trial(error=str(error))
    except BaseException as error:
        trial = Trial(by=f"{type(error).__name__} outside of a test", text=str(error)[:300])
    finally:
        partial = scratch / "partial"
        partial.write_text(json.dumps(trial._asdict()))
        partial.rename(scratch / "result")
        os._exit(0)


def _tried(sources: dict[str, str], paths: list[str], ignored: list[str], scratch: Path) -> Trial:
    import hypothesis
    import pytest

    # The same examples every time, and none is kept: what a bug breaks is no example of the product.
    hypothesis.settings.register_profile(
        "mutants",
        database=None,
        derandomize=True,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    hypothesis.settings.load_profile("mutants")
    os.chdir(ROOT)
    finder = plant_sources(sources)
    watcher = Watcher()
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # imported before the fork, and no tests
    options += [f"--timeout={TEST_SECONDS}", f"--basetemp={scratch / 'files'}"]
    options += [f"--ignore={path}" for path in ignored]
    code = pytest.main([*options, *paths], plugins=[watcher])
    if watcher.by:
        return Trial(by=watcher.by, text=watcher.text)
    if finder.missing:
        return Trial(error=f"never imported: {', '.join(sorted(finder.missing))}")
    if code != 0 or not watcher.passed:
        return Trial(error=f"pytest ended with {int(code)}, {watcher.passed} steps passed")
    return Trial()


if __name__ == "__main__":
    sys.exit(main())
