"""The judge of the end-to-end run finds each kind of lie about a log."""

import pytest

from tests.e2e.workload.check import Verdict, judge
from tests.e2e.workload.record import PartitionRecord, Record

RECORD = Record("run", {0: PartitionRecord(acknowledged={0: 0, 1: 2, 3: 4}, unknown={2}, failed={4})})
LOG = [(0, "run/0/0"), (1, "other/0/0"), (2, "run/0/1"), (3, "run/0/2"), (4, "run/0/3")]


def verdict(log: list[tuple[int, str]], after: int = -1) -> Verdict:
    found = Verdict()
    judge(found, RECORD, 0, [(transaction_id, data.encode()) for transaction_id, data in log], after)
    return found


def test_a_true_log_passes_with_and_without_what_is_unknown() -> None:
    found = verdict(LOG)
    assert found.passed
    assert found.transactions == 5
    assert verdict([*LOG[:3], (3, "other/0/9"), LOG[4]]).passed
    assert verdict(LOG[3:], after=2).passed


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (LOG[:4], "lost"),
        ([*LOG, (5, "run/0/3")], "doubled"),
        ([*LOG[:2], (2, "run/0/3"), (3, "x"), (4, "run/0/1")], "moved"),
        ([*LOG, (5, "run/0/4")], "resurrected"),
        ([*LOG[:3], LOG[4]], "gaps"),
        ([*LOG, (5, "run/0/9"), (6, "run/0/8")], "disorder"),
    ],
)
def test_every_kind_of_lie_is_found(log: list[tuple[int, str]], kind: str) -> None:
    found = verdict(log)
    assert getattr(found, kind) >= 1
    assert not found.passed
    assert found.examples


def test_the_gap_that_is_still_going_on_counts() -> None:
    part = PartitionRecord()
    part.start_round(10.0)
    part.acknowledge(0, 0, 10.5)
    assert part.longest_gap(10.7) == pytest.approx(0.5)
    assert part.longest_gap(12.0) == pytest.approx(1.5)


def test_a_gap_counts_for_its_lap_and_for_the_round() -> None:
    part = PartitionRecord()
    part.start_round(10.0)
    part.acknowledge(0, 0, 13.0)
    assert part.lap(13.5) == 3.0
    part.acknowledge(1, 1, 14.0)
    assert part.lap(16.0) == 2.0
    assert part.longest_gap(16.0) == 3.0
