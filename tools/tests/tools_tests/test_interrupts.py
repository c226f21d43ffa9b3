"""What is not an error passes through a command: Ctrl-C, a test's time limit, a cancellation, the end of the
interpreter.

A program that runs commands one after another (a test, a script with `run`) would never end otherwise: the
command would report a failure, and the loop around it would try again.
"""

from __future__ import annotations

import ast
import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from waltz_tools import __main__ as entry
from waltz_tools.cli import cluster

SOURCES = Path(entry.__file__).resolve().parent
WORKSPACE = SOURCES.parents[2]
OTHERS = (WORKSPACE / "libs/admin/src", WORKSPACE / "examples/flights")


class TimeLimit(BaseException):
    """As pytest's own, and that of pytest-timeout."""


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), TimeLimit("over"), asyncio.CancelledError(), SystemExit(7), GeneratorExit()],
)
def test_what_is_no_error_passes_through(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(cluster, "run_admin", interrupted)
    for command in (["cluster", "verify"], ["cluster", "status"], ["top"], ["doctor"]):
        with pytest.raises(type(error)):
            entry.run([*command, "-c", str(tmp_path)])
    assert "Error" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeLimit])
def test_it_passes_out_of_the_loop_that_a_command_runs(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised by a signal while the command waits, as pytest-timeout and Ctrl-C do it.

    What is raised elsewhere goes nowhere: in a callback of the garbage collector (hypothesis has one), or in
    uvloop's own code. So it is tried until the command's coroutine is what is interrupted.
    """

    def raise_it(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename in (__file__, asyncio.tasks.__file__):
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise error

    async def waits(*_: object, **__: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.005)
        while True:
            await asyncio.sleep(0)

    async def no_context(work: object) -> None:
        await waits()

    monkeypatch.setattr(cluster, "run_admin", lambda config, work: entry_run(no_context(work)))
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        with pytest.raises(error):
            entry.run(["cluster", "verify", "-c", str(tmp_path)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def entry_run(work: object) -> None:
    """As `waltz_tools.cli.common.run`, on the same kind of loop."""
    from waltz_tools.cli.common import run

    run(work)  # type: ignore[arg-type]


def test_ctrl_c_ends_the_process_with_130(tmp_path: Path) -> None:
    """A command that waits for ZooKeeper, in a process of its own."""
    config = tmp_path / "client.yaml"
    config.write_text(
        "zookeeper.connectString: 127.0.0.1:1\nzookeeper.sessionTimeout: 1000\nzookeeper.connectTimeout: 60000\n"
        "cluster.root: /nowhere\nclient.ssl.allowUnverified: true\n"
    )
    code = (
        "import os, signal, threading, sys\n"
        "from waltz_tools.__main__ import main\n"
        "import waltz_cluster.zk_client as zk\n"
        "async def connect(*_, **__):\n"
        "    import asyncio\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    await asyncio.sleep(60)\n"
        "zk.connect = connect\n"
        f"main(['zk', 'list', '-c', {str(config)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


_APPENDS = """
import asyncio, os, types
from contextlib import asynccontextmanager
from waltz_tools.__main__ import main
from waltz_tools.cli import log

class Client:
    async def append(self, *, data, **_):
        if data == b"never":
            os.write(1, b"sent\\n")
            await asyncio.sleep(1000)
        return types.SimpleNamespace(transaction_id=7)

@asynccontextmanager
async def connect(_):
    yield Client()

log.WaltzClient = types.SimpleNamespace(connect=connect)
main(["append", "-c", "any.yaml", "-p", "3"])
"""


@pytest.mark.parametrize(
    ("line", "answer", "said"),
    [
        (b"one\n", b"3 7", ""),
        (
            b"never\n",
            b"sent",
            "interrupted: whether the append to partition 3 that was in progress is committed",
        ),
    ],
)
def test_ctrl_c_ends_an_append_that_reads_a_terminal(line: bytes, answer: bytes, said: str) -> None:
    """A thread that reads from it may wait for a line that nobody writes: the command waits for no thread."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _APPENDS], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            os.write(ours, line)
            assert process.stdout.readline().strip() == answer
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    assert (process.returncode, out) == (130, b"")
    assert err.decode().startswith(said)
    assert len(err.splitlines()) == bool(said)


def test_what_takes_long_to_import_is_imported_where_ctrl_c_is_handled() -> None:
    """The console script imports this module before anything handles it."""
    code = "import sys, waltz_tools.__main__; print(*sorted({'typer', 'asyncio', 'structlog'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


_SWALLOWED = """
import os, signal, sys
from waltz_tools.__main__ import main

class Swallows:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                while True:
                    pass
            except KeyboardInterrupt:
                raise ValueError("Error building a validator: KeyboardInterrupt") from None

sys.meta_path.insert(0, Swallows())
main(["--version"])
"""


def test_ctrl_c_while_a_library_is_imported_that_makes_an_error_of_it() -> None:
    """As pydantic does while it builds a model."""
    done = subprocess.run(
        [sys.executable, "-c", _SWALLOWED], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_no_command_catches_what_is_no_error() -> None:
    """In tools, admin and the demo a handler of BaseException raises again; nothing is bare, and nobody
    suppresses interrupts."""
    found = []
    for path in (one for folder in (SOURCES, *OTHERS) for one in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                names = "BaseException" if node.type is None else ast.unparse(node.type)
                raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                if any(name in names for name in _NO_ERRORS) and not raises:
                    found.append(f"{path.name}:{node.lineno}: except {names}")
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
                names = " ".join(ast.unparse(argument) for argument in node.args)
                if any(name in names for name in _NO_ERRORS):
                    found.append(f"{path.name}:{node.lineno}: suppress({names})")
    (only,) = found  # `leave`, the end of the process: Ctrl-C is its exit code
    assert only.startswith("__main__.py:")
    assert only.endswith("except KeyboardInterrupt")


_NO_ERRORS = ("BaseException", "KeyboardInterrupt", "CancelledError", "SystemExit", "GeneratorExit")
