"""The checker notices each way in which a log and what was said about it can disagree."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.nemesis.checks import Checker, LogReading
from tests.integration.nemesis.history import History
from tests.integration.nemesis.load.journal import Journal, digest
from tests.integration.nemesis.load.payload import Payload
from waltz_client.errors import AppendFailedError, OutcomeUnknownError

HEADER = 0


def transfer(name: str, read: tuple[int, int], amount: int = 10) -> bytes:
    return Payload(name, "transfer", {"from": 0, "to": 1, "amount": amount, "read": list(read)}).encode()


def blind(name: str, number: int) -> bytes:
    return Payload(name, "blind", {"stream": "s", "number": number}).encode()


FIRST = transfer("w.1/1", (100, 100))
SECOND = transfer("w.1/2", (90, 110))
FAILED = transfer("w.1/3", (80, 120))
UNKNOWN = Payload("w.1/4", "increment", {"counter": 0}).encode()
LOG = [FIRST, SECOND, UNKNOWN]


def write_journal(path: Path) -> None:
    journal = Journal(path / "w.1.journal")
    for number in range(1, 5):
        journal.sending(f"w.1/{number}")
    journal.acknowledged("w.1/1", 0, 0)
    journal.acknowledged("w.1/2", 0, 1)
    journal.ended("w.1/3", AppendFailedError("dropped", partition_id=0))
    journal.ended("w.1/4", OutcomeUnknownError("late", partition_id=0))
    journal.close()


def check(path: Path, log: list[bytes], first_id: int = 0) -> list[str]:
    write_journal(path)
    reading = LogReading(1)
    checker = Checker(History(path), reading)
    checker.before_reading()
    for transaction_id, data in enumerate(log, start=first_id):
        reading.add(0, transaction_id, HEADER, data)
    return checker.after_reading()


def test_a_true_story_passes(tmp_path: Path) -> None:
    assert check(tmp_path, LOG) == []
    assert check(tmp_path, [FIRST, SECOND]) == []  # the unknown one may be absent


@pytest.mark.parametrize(
    ("log", "rule"),
    [
        ([FIRST], "lost: w.1/2"),
        ([UNKNOWN, FIRST, SECOND], "lost: w.1/1"),
        ([FIRST, SECOND, SECOND], "in the log twice"),
        ([FIRST, SECOND, FAILED], "failed but present: w.1/3"),
        ([*LOG, transfer("stranger", (80, 120))], "never written: stranger"),
        ([FIRST, SECOND, b"\x00"], "not written by us"),
        (
            [FIRST, SECOND, Payload("w.1/4", "count", {"counter": 0, "counted": 1}).encode()],
            "not serializable",
        ),
        (
            [FIRST, SECOND, Payload("w.1/4", "audit", {"balances": [90, 110] + [100] * 6}).encode()],
            "not serializ",
        ),
        (
            [FIRST, SECOND, Payload("w.1/4", "audit", {"balances": [90, 120] + [100] * 6}).encode()],
            "bank total",
        ),
        ([FIRST, SECOND, blind("w.1/4", 1), blind("w.1/4", 0)], "pipeline out of order"),
    ],
)
def test_a_wrong_log_is_noticed(tmp_path: Path, log: list[bytes], rule: str) -> None:
    assert any(found.startswith(rule) for found in check(tmp_path, log)), rule


def test_ids_that_are_not_dense_are_noticed(tmp_path: Path) -> None:
    assert any(found.startswith("ids not dense") for found in check(tmp_path, LOG, first_id=1))


def deliver(path: Path, write: Callable[[Journal], None]) -> list[str]:
    journal = Journal(path / "feed.1.journal")
    journal.feeds_begin()
    write(journal)
    journal.close()
    return check(path, LOG)


def seen(*ids: int) -> list[tuple[int, int, str]]:
    return [(0, each, digest(HEADER, LOG[each])) for each in ids]


def test_feeds_that_tell_the_truth_pass(tmp_path: Path) -> None:
    def two_lives(journal: Journal) -> None:
        journal.delivered(seen(0, 1))
        journal.feeds_begin()
        journal.delivered(seen(0, 1, 2))

    assert deliver(tmp_path, two_lives) == []


@pytest.mark.parametrize("ids", [(0, 2), (1,), (0, 0), (0, 1, 0)])
def test_a_feed_out_of_order_is_noticed(tmp_path: Path, ids: tuple[int, ...]) -> None:
    found = deliver(tmp_path, lambda journal: journal.delivered(seen(*ids)))
    assert any(each.startswith("feed out of order") for each in found)


def test_a_fork_is_noticed(tmp_path: Path) -> None:
    found = deliver(tmp_path, lambda journal: journal.delivered([(0, 0, digest(HEADER, SECOND))]))
    assert any(each.startswith("fork") for each in found)


def test_what_a_feed_saw_before_the_log_was_read_so_far_is_checked_later(tmp_path: Path) -> None:
    write_journal(tmp_path)
    journal = Journal(tmp_path / "feed.1.journal")
    journal.feeds_begin()
    journal.delivered([*seen(0, 1), (0, 2, "another")])
    journal.close()
    reading = LogReading(1)
    checker = Checker(History(tmp_path), reading)
    checker.before_reading()
    for transaction_id in (0, 1):
        reading.add(0, transaction_id, HEADER, LOG[transaction_id])
    assert checker.after_reading() == []
    assert [each.partition(":")[0] for each in checker.at_the_end()] == ["fork"]
    checker.before_reading()
    reading.add(0, 2, HEADER, LOG[2])
    assert [each.partition(":")[0] for each in checker.after_reading()] == ["fork"]
    assert checker.at_the_end() == []


def test_what_a_client_says_must_not_happen_is_a_violation(tmp_path: Path) -> None:
    assert any("ahead" in each for each in deliver(tmp_path, lambda journal: journal.bug("ahead")))


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    write_journal(tmp_path)
    path = tmp_path / "w.1.journal"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 4])
    history = History(tmp_path)
    history.update()
    assert history.unknown == set()
    path.write_bytes(whole)
    history.update()
    assert history.unknown == {"w.1/4"}
    assert history.undecided == 1
