"""The life of a service process, seen from outside: signals, exit codes, what it prints."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from waltz_protocol.aio.tasks import spawn
from waltz_runtime.process import CutShortBy, find_user_error

PROLOGUE = """
import asyncio, sys
from waltz_runtime.logs import configure_logging
from waltz_runtime.process import run_service
class Mistake(Exception):
    user_error = True
def ready():
    print("ready", flush=True)
"""
WAITS = PROLOGUE + "async def main(stop):\n    ready()\n    await stop.wait()\n    print('bye', flush=True)\n"
HANGS = PROLOGUE + (
    "async def main(stop):\n    ready()\n    await stop.wait()\n    print('stopping', flush=True)\n"
    "    await asyncio.Event().wait()\n"
)
RUN = "configure_logging()\nsys.exit(run_service(main))\n"


def start(code: str, prefix: list[str] | None = None, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*(prefix or []), sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise RuntimeError("no standard output")
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_service_in_order(number: signal.Signals) -> None:
    process = start(WAITS + RUN)
    assert line(process) == "ready"
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, out) == (0, "bye\n")
    assert number.name in err


STARTS = PROLOGUE + (
    "from waltz_runtime.process import CutShortBy\n"
    "async def main(stop):\n"
    "    async with CutShortBy(stop):\n"
    "        try:\n            ready()\n            await asyncio.Event().wait()\n"
    "        finally:\n            print('given up', flush=True)\n"
    "    print('bye', flush=True)\n"
)


def test_a_service_that_waits_at_its_start_gives_that_up() -> None:
    process = start(STARTS + RUN)
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (0, "given up\nbye\n")
    assert "Traceback" not in err


async def test_what_is_cut_short_by_nothing_runs_to_its_end() -> None:
    stop = asyncio.Event()
    async with CutShortBy(stop):
        await asyncio.sleep(0)
    stop.set()
    await asyncio.sleep(0.01)  # nobody cancels this


async def test_a_cancellation_from_elsewhere_passes() -> None:
    """Also when the service is asked to leave in the same turn."""
    for set_too in (False, True):
        stop, waiting = asyncio.Event(), asyncio.Event()

        async def service(stop: asyncio.Event = stop, waiting: asyncio.Event = waiting) -> None:
            async with CutShortBy(stop):
                waiting.set()
                await asyncio.Event().wait()

        task = spawn(service(), "service")
        await waiting.wait()
        if set_too:
            stop.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_second_signal_ends_at_once() -> None:
    process = start(HANGS + RUN)
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert line(process) == "stopping"
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM
    assert "second SIGTERM: leaving at once" in err


def test_shutdown_that_hangs_is_bounded() -> None:
    process = start(
        HANGS + "configure_logging()\nsys.exit(run_service(main, shutdown_timeout_seconds=0.05))\n"
    )
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 70
    assert "did not stop in time" in err


STUCK = {
    "in a pool of its own": "    with ThreadPoolExecutor(1) as pool:\n        await loop.run_in_executor(pool, stuck)\n",
    "in a pool that is left behind": "    await loop.run_in_executor(ThreadPoolExecutor(1), stuck)\n",
    "in the pool of the loop": "    await asyncio.to_thread(stuck)\n",
    "in a pool that is closed at once": (
        "    with ThreadPoolExecutor(1) as pool:\n        pool.submit(stuck)\n        await stop.wait()\n"
    ),
}
"""A thread that does not come back, as one whose disk hangs: nobody can end it but with the process."""


def stuck(where: str, shutdown_timeout_seconds: float) -> subprocess.Popen[str]:
    code = PROLOGUE + (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "def stuck():\n    ready()\n    threading.Event().wait()\n"
        "async def main(stop):\n    loop = asyncio.get_running_loop()\n"
    )
    end = f"sys.exit(run_service(main, shutdown_timeout_seconds={shutdown_timeout_seconds}))\n"
    return start(code + STUCK[where] + "configure_logging()\n" + end)


@pytest.mark.parametrize("where", STUCK)
def test_a_stuck_thread_does_not_keep_the_process(where: str) -> None:
    process = stuck(where, 0.05)
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 70
    assert "did not stop in time" in err


@pytest.mark.parametrize("where", STUCK)
def test_a_second_signal_ends_a_process_whose_thread_is_stuck(where: str) -> None:
    process = stuck(where, 60.0)
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    if process.stderr is None:
        raise RuntimeError("no standard error")
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM
    assert "second SIGTERM: leaving at once" in err


def test_a_program_that_continues_after_its_service_is_left_alone() -> None:
    code = PROLOGUE + (
        "import threading\nfrom waltz_runtime import process\nprocess._AFTER_SECONDS = 0.05\n"
        "async def main(stop):\n    ready()\n    await stop.wait()\n"
        "code = run_service(main, shutdown_timeout_seconds=0.05)\n"
        "threading.Event().wait(1.0)\nprint('continued', code, flush=True)\n"
    )
    process = start(code)
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    code_of_process, out, _ = finish(process)
    assert (code_of_process, out.splitlines()[-1]) == (0, "continued 0")


def test_user_error_is_one_line_and_exit_code_1() -> None:
    code = PROLOGUE + "async def main(stop):\n    raise Mistake('bad\\nkey in file.yaml')\n" + RUN
    assert finish(start(code)) == (1, "", "Error: bad key in file.yaml\n")


def test_user_error_inside_a_task_group_is_one_line() -> None:
    code = PROLOGUE + (
        "async def fail():\n    raise Mistake('port in use')\n"
        "async def main(stop):\n"
        "    async with asyncio.TaskGroup() as group:\n        group.create_task(fail())\n"
    )
    assert finish(start(code + RUN)) == (1, "", "Error: port in use\n")


def test_unexpected_error_has_a_stack_trace_and_exit_code_70() -> None:
    code, _, err = finish(start(PROLOGUE + "async def main(stop):\n    raise KeyError('x')\n" + RUN))
    assert code == 70
    assert "Traceback" in err
    assert "KeyError" in err


def test_a_process_ends_at_once_from_any_thread() -> None:
    code = PROLOGUE + (
        "import threading\nfrom waltz_runtime.process import end_at_once\n"
        "async def main(stop):\n    try:\n"
        "        threading.Thread(target=end_at_once, args=[MemoryError('no room')]).start()\n"
        "        await stop.wait()\n    finally:\n        print('an orderly end')\n"
    )
    exit_code, out, err = finish(start(code + RUN))
    assert exit_code == 70
    assert "MemoryError: no room" in err
    assert "an orderly end" not in out


def test_json_logs_are_one_object_per_line() -> None:
    code = PROLOGUE + (
        "import logging, structlog\n"
        "async def main(stop):\n"
        "    structlog.get_logger('x').info('hello', partition=3)\n"
        "    logging.getLogger('lib').warning('from %s', 'lib')\n"
        "    logging.getLogger('kazoo.client').info('noise')\n"
        "    structlog.get_logger('x').debug('below the level')\n"
        "configure_logging('info', json=True)\nsys.exit(run_service(main))\n"
    )
    code_, _, err = finish(start(code))
    events = [json.loads(text) for text in err.splitlines()]
    assert code_ == 0
    assert [(e["event"], e["level"], e["logger"]) for e in events] == [
        ("hello", "info", "x"),
        ("from lib", "warning", "lib"),
    ]
    assert events[0]["partition"] == 3


def test_unknown_log_level() -> None:
    result = finish(start(PROLOGUE + "configure_logging('LOUD')"))
    assert result[0] == 1
    assert "unknown log level 'LOUD'" in result[2]


def test_tasks_and_futures_are_counted_when_asked_for() -> None:
    code = PROLOGUE + (
        "async def nothing():\n    pass\n"
        "async def main(stop):\n"
        "    await asyncio.sleep(0.01)\n"  # one future
        "    async with asyncio.TaskGroup() as group:\n"
        "        for _ in range(3):\n            group.create_task(nothing())\n"
        "    await asyncio.sleep(0.01)\n"
        "configure_logging(json=True)\nsys.exit(run_service(main))\n"
    )
    _, _, err = finish(start(code, WALTZ_COUNT_TASKS="1"))
    event = json.loads(err.splitlines()[-1])
    assert event["event"] == "loop counters"
    assert event["tasks_created"] >= 4  # main and three
    assert event["futures_created"] >= 2
    assert sum(event["turns_by_created"][3:]) >= 1
    assert finish(start(code))[2] == ""


def test_works_as_process_1() -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        pytest.skip(f"cannot make a process namespace here: {failure}")
    # inside: process 1 is the service; its parent (unshare) only waits, so the signal goes to the child
    code = "import os\nif os.getpid() != 1: raise SystemExit('not process 1')\n" + WAITS + RUN
    process = start(code, unshare)
    assert line(process) == "ready"
    children = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    os.kill(int(children.stdout), signal.SIGTERM)
    code_, out, _ = finish(process)
    assert (code_, out) == (0, "bye\n")


def test_user_error_mixed_with_another_is_no_user_error() -> None:
    class Mistake(Exception):
        user_error = True

    mistake = Mistake("a")
    assert find_user_error(ExceptionGroup("g", [mistake, ExceptionGroup("h", [Mistake("b")])])) is mistake
    assert find_user_error(ExceptionGroup("g", [mistake, KeyError("b")])) is None
    assert find_user_error(KeyError("b")) is None


def test_a_service_may_open_as_many_files_as_the_hard_limit_allows() -> None:
    """A storage node of 100 partitions needs more than the usual soft limit of 1024."""
    script = (
        "import resource, sys\n"
        "from waltz_runtime.process import run_service\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "async def main(stop):\n"
        "    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard)\n"
        "sys.exit(run_service(main))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("imported", [False, True])
def test_process_1_ends_at_sigterm_before_it_handles_it(imported: bool) -> None:
    """And no other process is changed by the import: the kernel ends it."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        pytest.skip(f"cannot make a process namespace here: {failure}")
    early = "import waltz_runtime.early_end\n" if imported else ""
    code = f"import signal, time\n{early}print('ready', flush=True)\ntime.sleep(1)\nprint('it came up')\n"
    process = start(code, unshare)
    assert line(process) == "ready"
    children = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    os.kill(int(children.stdout), signal.SIGTERM)
    code_, out, _ = finish(process)
    assert (code_, out) == ((128 + signal.SIGTERM, "") if imported else (0, "it came up\n"))
    process = start(code)
    assert line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == -signal.SIGTERM
