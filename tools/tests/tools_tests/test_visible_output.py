"""What a command prints for a person rewrites no screen and forges no line, wherever it comes from; what it
prints for programs is exact."""

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console

from waltz_runtime.visible import visible
from waltz_tools import __main__ as program
from waltz_tools.__main__ import run
from waltz_tools.cli import k8s, log, progress
from waltz_tools.cli.common import Listing, OutputFormat, render_listings, render_result
from waltz_tools.cli.confirmation import confirm
from waltz_tools.cli.status_page import page
from waltz_tools.errors import ToolError

HOSTILE = "\x1b[2J\x1b]0;title\x07 a\rb\nforged \x9b31m \u202egnp.exe\x7f"
SHOWN = visible(HOSTILE)


def lines(text: str) -> list[str]:
    """Of an output, none of which has another character than a terminal prints."""
    found = text.removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in found), text
    assert not any(line.startswith("forged") for line in found)
    return found


class OneTransaction:
    """A client whose log holds one transaction."""

    num_partitions = 1

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def high_water_mark(self, partition: int, *, deadline_seconds: float) -> int:
        return 0

    async def get_data(self, partition: int, transaction: int, *, deadline_seconds: float) -> bytes:
        return self.data

    @asynccontextmanager
    async def feed(self, *partitions: object, **options: object) -> AsyncIterator[AsyncIterator[object]]:
        async def transactions() -> AsyncIterator[object]:
            yield SimpleNamespace(
                partition_id=0,
                transaction_id=0,
                header=7,
                req_id=SimpleNamespace(client_id=3),
                data=self.data,
            )

        yield transactions()


@pytest.fixture
def _log(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def connect(config: object) -> AsyncIterator[OneTransaction]:
        yield OneTransaction(HOSTILE.encode())

    monkeypatch.setattr(log, "WaltzClient", SimpleNamespace(connect=connect))


@pytest.mark.usefixtures("_log")
@pytest.mark.parametrize("command", [["tail"], ["get", "0", "-p", "0"]])
def test_a_transaction(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "-c", "any", "--output", "table"]) == 0
    assert lines(capsys.readouterr().out) == [f"0 0 header=7 {SHOWN}"]
    assert run([*command, "-c", "any"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["data"] == HOSTILE


@pytest.mark.usefixtures("_log")
def test_a_raw_payload_is_exact(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["get", "0", "-p", "0", "-c", "any", "--raw"]) == 0
    assert capfdbinary.readouterr().out == HOSTILE.encode()


def test_tables_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    listing = Listing("one", f"cluster {HOSTILE}", ["Name", "Names"])
    empty = Listing("none", f"no {HOSTILE} [bold]", ["Name"])
    listing.add(HOSTILE, [HOSTILE, "b"])
    render_listings(OutputFormat.TABLE, [listing, empty])
    render_result(OutputFormat.TABLE, f"added {HOSTILE}", "twice", name=HOSTILE)
    found = lines(capsys.readouterr().out)
    assert found[0].rstrip() == f"cluster {SHOWN}"
    assert f"{SHOWN},b" in found[4]
    assert found[-3:] == [f"no {SHOWN} [bold]", f"added {SHOWN}", "twice"]
    render_listings(OutputFormat.JSON, [listing])
    render_result(OutputFormat.JSON, "", name=HOSTILE)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"one": [{"name": HOSTILE, "names": [HOSTILE, "b"]}]}
    assert second == {"name": HOSTILE}


def test_the_live_page(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=300).print(page([], [f"node {HOSTILE} does not answer"]))
    assert lines(capsys.readouterr().out) == [f"node {SHOWN} does not answer"]


def test_errors_and_their_stack_traces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.show(ToolError(f"the server says \x1b[2J{HOSTILE}"))
    (line,) = lines(capsys.readouterr().err)
    assert line.startswith(r"Error: the server says \x1b[2J\x1b[2J")
    monkeypatch.setenv("WALTZ_DEBUG", "1")
    program.show(ToolError("\x1b[2J"))
    trace, line = lines(capsys.readouterr().err)
    assert trace.endswith(r"ToolError: \x1b[2J")
    assert line == r"Error: \x1b[2J"


def test_warnings_of_the_client_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest
        logging.getLogger("waltz_client.any").warning("the server says %s", HOSTILE)
        return 0

    with pytest.raises(SystemExit):
        program.leave(work)
    assert lines(capsys.readouterr().err) == [f"the server says {SHOWN}"]


def test_questions_progress_and_conditions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def ask(text: str, **options: object) -> bool:
        asked.append(text)
        return True

    terminal = SimpleNamespace(isatty=lambda: True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", terminal)
        patched.setattr(sys.stderr, "isatty", lambda: True)
        patched.setattr(typer, "confirm", ask)
        confirm(f"{HOSTILE} is deleted", yes=False)
    assert asked == [f"{SHOWN} is deleted. Continue?"]
    k8s._show_status({"phase": "Failed", "message": HOSTILE})
    assert lines(capsys.readouterr().err) == [f"Failed {SHOWN}"]
    monkeypatch.setattr(progress, "Console", lambda **_: Console(stderr=True, force_terminal=True, width=300))
    with progress.progress(HOSTILE, 2) as advance:
        advance(1, text=f"now {HOSTILE}")
    drawn = capsys.readouterr().err
    assert f"now {SHOWN}" in drawn
    assert "\x1b]0;" not in drawn
    assert "\x9b" not in drawn
