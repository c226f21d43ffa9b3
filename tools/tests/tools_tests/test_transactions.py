"""Transactions as text, header filters, consent: no cluster is needed."""

import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from waltz_client import Committed, LockId
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run
from waltz_tools.cli import log
from waltz_tools.cli.confirmation import confirm
from waltz_tools.cli.transactions import (
    HeaderFilter,
    Line,
    json_lines,
    parse_lock,
    payload,
    plain_lines,
    show,
)
from waltz_tools.errors import ToolError, UsageError


@pytest.mark.parametrize(
    ("text", "passing", "stopped"),
    [
        ("7", [7], [6, 8, -7, 0]),
        ("-1", [-1], [1, 0]),
        ("0xffffffff", [-1], [1]),
        ("0x10/0xf0", [0x10, 0x1F, 0x310, -240], [0x20, -224, 0]),
        ("0/0", [0, 5, -9], []),
        ("3/1", [1, 5, -1], [2]),
    ],
)
def test_header_filters(text: str, passing: list[int], stopped: list[int]) -> None:
    wanted = HeaderFilter.parse(text)
    assert [header for header in passing if not wanted(header)] == []
    assert [header for header in stopped if wanted(header)] == []


@pytest.mark.parametrize("text", ["", "x", "1/", "/1", "1/2/3", "0x1ffffffff", "1/-1", "1/0x1ffffffff"])
def test_wrong_header_filters_are_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="VALUE or VALUE/MASK"):
        HeaderFilter.parse(text)


def test_lines_in_and_out() -> None:
    assert [line.data for line in plain_lines(io.BytesIO(b"a\r\n\nb"))] == [b"a", b"", b"b"]
    assert payload(b"text") == {"data": "text"}
    assert payload(b"\xff") == {"data_base64": "/w=="}
    raw = b'{"data": "a", "header": 3, "partition": 1, "transaction": 9}\n\n{"data_base64": "/w=="}\n'
    assert list(json_lines(io.BytesIO(raw))) == [Line(b"a", 3, 1), Line(b"\xff")]
    assert show({"partition": 1, "transaction": 2, "header": 3}) == "1 2 header=3"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"no", "line 1"),
        (b"[]", "no object"),
        (b"{}", "neither data"),
        (b'{"data": 1}', "neither data"),
        (b'{"data": "a", "header": true}', "header is no whole number"),
        (b'{"data": "a", "header": 2147483648}', "line 1 .* header 2147483648 is not between"),
        (b'{"data": "a", "partition": -1}', "partition -1 is not between"),
        (b'{"data_base64": "*"}', "line 1"),
        (b"[" * 100_000, "line 1"),
        (b'{"data": "a"}\n{"data": "a", "partition": 1.5}', "line 2"),
    ],
)
def test_wrong_json_lines_say_which(raw: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        list(json_lines(io.BytesIO(raw)))


class Terminal(io.StringIO):
    """Somebody sits there."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False)]
)
def test_consent_is_asked_for_on_a_terminal(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    if agreed:
        confirm("everything goes", yes=False)
        return
    with pytest.raises(ToolError, match="nothing was changed"):
        confirm("everything goes", yes=False)


def test_an_interrupted_question_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, and the end of the input."""

    class Interrupted(Terminal):
        def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
            raise KeyboardInterrupt

    for stdin in (Interrupted(), Terminal("")):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", Terminal())
        with pytest.raises(ToolError, match="nothing was changed"):
            confirm("everything goes", yes=False)


def test_elsewhere_it_has_to_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="everything goes: pass --yes"):
        confirm("everything goes", yes=False)
    confirm("everything goes", yes=True)


def test_the_payload_of_the_command_line_is_its_bytes_whatever_the_encoding() -> None:
    (line,) = log._input(os.fsdecode(b"caf\xe9"), whole=False, as_json=False)
    assert line.data == b"caf\xe9"


def test_a_lock_has_a_number_or_a_text() -> None:
    assert parse_lock("account:42") == LockId("account", 42)
    assert parse_lock("account/alice") == LockId.of("account", "alice")
    assert parse_lock("account/urn:alice") == LockId.of("account", "urn:alice")
    for wrong in ("account:alice", "account", "account/", "/alice", ":7"):
        with pytest.raises(
            UsageError, match=r"a lock is NAME:ID with a whole number.* or NAME/KEY with any text"
        ):
            parse_lock(wrong)


@pytest.mark.parametrize("fails", [False, True])
def test_all_lines_are_read_in_one_thread_which_ends_with_the_command(
    fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readers: list[threading.Thread] = []

    def lines(*_: object) -> Iterator[Line]:
        for number in range(5):
            readers.append(threading.current_thread())
            yield Line(b"%d" % number)
        if fails:
            raise UsageError("line 6 is wrong")

    class Client:
        async def append(self, *, data: bytes, **_: object) -> Committed:
            return Committed(0, int(data))

    @asynccontextmanager
    async def connect(_: object) -> AsyncIterator[Client]:
        yield Client()

    monkeypatch.setattr(log, "_input", lines)
    monkeypatch.setattr(log, "WaltzClient", SimpleNamespace(connect=connect))
    assert run(["append", "-c", "any.yaml"]) == (ExitCode.USAGE if fails else ExitCode.OK)
    captured = capsys.readouterr()
    assert captured.out.split() == ["0", "0", "0", "1", "0", "2", "0", "3", "0", "4"]
    assert ("line 6 is wrong" in captured.err) is fails
    assert len(set(readers)) == 1
    assert readers[0] is not threading.current_thread()
    readers[0].join(10)
    assert not readers[0].is_alive()
