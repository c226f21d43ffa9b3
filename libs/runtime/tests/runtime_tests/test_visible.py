"""What came from elsewhere rewrites no terminal and forges no line, and the rest is printed as it is."""

import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from waltz_runtime.logs import configure_logging, report_end
from waltz_runtime.visible import VisibleFormatter, visible, visible_lines

HOSTILE = "\x1b[2J\x1b]0;title\x07 a\rb\nforged \x9b31m \u202egnp.exe\udcff"


@given(st.text(st.characters(codec=None)))
def test_only_characters_that_are_printed_are_left_and_they_are_as_they_were(text: str) -> None:
    assert visible(text).isprintable()
    if text.isprintable():
        assert visible(text) == text


def test_it_is_written_as_repr_does() -> None:
    assert visible("é \x1b[31m\n\x7f\u202e \\n") == r"é \x1b[31m\n\x7f\u202e \n"
    assert visible_lines("a\x1b\nb") == "a\\x1b\nb"


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """The lines of standard error; logging is afterwards as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err.removesuffix("\n").split("\n")
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def write_everything() -> None:
    """All that takes a text to a line: events, values with and without spaces, arguments, stack traces."""
    ours, foreign = structlog.get_logger("ours"), logging.getLogger("foreign")
    ours.warning(f"event {HOSTILE}", peer=HOSTILE, name="\x1b[2J", known="as it is")
    foreign.warning("of a peer: %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        ours.error("ours", exc_info=error)
        foreign.exception("foreign")
    report_end(HOSTILE)


def test_log_lines_for_people_are_visible(log: Callable[[], list[str]]) -> None:
    configure_logging("INFO")
    write_everything()
    lines = log()
    assert all(line.isprintable() for line in lines)
    assert [line.startswith("forged") for line in lines].count(True) == 2, "of the two stack traces"
    assert sum(r"\x1b[2J\x1b]0;title\x07" in line for line in lines) == 5
    assert "known='as it is'" in lines[0]
    assert repr(HOSTILE) in lines[0], "escaped once"


def test_a_stack_trace_that_a_library_hands_over_is_below_its_line(log: Callable[[], list[str]]) -> None:
    configure_logging("INFO")
    logging.getLogger("foreign").warning("failed", extra={"exception": "one\x1b\ntwo", "stack": "three"})
    structlog.get_logger("ours").warning("failed", exception="one\x1b\ntwo", stack="three")
    lines = log()
    assert "failed" in lines[0]
    assert lines.count(r"one\x1b") == lines.count("two") >= 1
    assert all(line.isprintable() for line in lines)


def test_json_log_lines_hold_the_text_itself(log: Callable[[], list[str]]) -> None:
    configure_logging("INFO", json=True)
    write_everything()
    lines = [json.loads(line) for line in log()]
    assert lines[0]["peer"] == HOSTILE
    assert lines[-1]["event"] == HOSTILE


def test_the_formatter_of_commands(log: Callable[[], list[str]]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter())
    logging.getLogger().handlers[:] = [handler]
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("client").exception("said %s", HOSTILE)
    first, *others = log()
    assert first == f"said {visible(HOSTILE)}"
    assert others[0].startswith("Traceback")
    assert all(line.isprintable() for line in others)
