"""Standard output that is no terminal: a pipe, a reader that ends, a full disk."""

import asyncio
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run
from waltz_tools.cli import cluster, log
from waltz_tools.cli.common import Listing, out_console, print_json, print_line, print_tables
from waltz_tools.errors import OutputError, ReaderGoneError

FULL = "standard output cannot be written: No space left on device"


def listing(title: str) -> Listing:
    made = Listing("cluster", title, ["Name"])
    made.add("waltz")
    return made


def test_top_prints_each_observation_where_nothing_can_be_drawn_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed: list[str] = []

    async def live(
        _: object, __: float, count: int, show: Callable[[list[Listing], list[str]], None]
    ) -> None:
        for number in range(count):
            show([listing(f"page {number}")], [f"problem {number}"])
            printed.append(capsys.readouterr().out)

    monkeypatch.setattr(cluster, "live", live)
    monkeypatch.setattr(cluster, "run_admin", lambda config, work: asyncio.run(work(None)))
    assert run(["top", "-c", str(tmp_path), "--count", "2"]) == ExitCode.OK
    for number, text in enumerate(printed):
        assert [word in text for word in (f"page {number}", "waltz", f"problem {number}")] == [True] * 3, text
    assert len(printed) == 2
    assert capsys.readouterr().out == ""


WRITERS: dict[str, Callable[[], object]] = {
    "a line": lambda: print_line("text"),
    "JSON": lambda: print_json({}),
    "a table": lambda: print_tables(out_console(), [listing("title")]),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_reported_as_that_of_standard_output(
    write: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a command speaks of the disks of storage nodes too."""
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputError, match=f"^{FULL}$"):
            write()
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):
            full.close()


class _Output(io.RawIOBase):
    def __init__(self, error: OSError) -> None:
        self._error = error

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raise self._error


def _text(error: OSError) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(_Output(error)))


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(28, "No space left on device"), OutputError), (BrokenPipeError(), ReaderGoneError)],
)
def test_a_raw_payload_into_what_takes_nothing(
    error: OSError, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def payload(work: Any) -> bytes:
        work.close()
        return b"payload"

    monkeypatch.setattr(log, "run", payload)
    monkeypatch.setattr(sys, "stdout", _text(error))
    with pytest.raises(raised):
        log.get(Path("any.yaml"), 0, 0, raw=True)
    monkeypatch.undo()


def test_a_reader_that_has_ended_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _text(BrokenPipeError()))
    for write in WRITERS.values():
        with pytest.raises(ReaderGoneError):
            write()
    monkeypatch.undo()
