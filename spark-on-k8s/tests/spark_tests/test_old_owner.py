"""An old owner of a partition does not know yet that it is one, and answers with an end of the log that lies
before a position that was asked for: it is asked again, by batch reads and by streams that begin."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from spark_tests.fake_log import CLUSTER, Clock, FakeLog, planned, reader
from waltz_spark import log_ends
from waltz_spark.batch import plan
from waltz_spark.errors import DataLossError, UnavailableError
from waltz_spark.options import BATCH, ReadOptions
from waltz_spark.planning import Range


def moving(*ends: int) -> FakeLog:
    """The new owner of partition 0 answers from the third question on."""
    log = FakeLog(5, *ends[1:])
    log.on_mark = lambda: log.ends.__setitem__(0, 5 if log.marks_asked[0] < 2 else ends[0])
    return log


def batch(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch, clock: Clock | None = None, **options: str
) -> list[Range]:
    clock = clock or Clock()
    monkeypatch.setattr("waltz_spark.batch.lease", lambda keys: nullcontext(log))
    return plan(ReadOptions.load(CLUSTER | options, BATCH), clock, clock.sleep)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_batch_read_leaves_nothing_out_for_an_old_owner(
    monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    found = batch(
        moving(10),
        monkeypatch,
        startingTransactions='{"0": 8}',
        endingTransactions='{"0": 10}',
        failOnDataLoss=strict,
    )
    assert found == [Range(0, 8, 9)]


def test_a_batch_read_of_what_is_not_in_the_log_asks_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with pytest.raises(DataLossError, match="partition 0 ends before transaction 5, 6 was asked for"):
        batch(FakeLog(5), monkeypatch, clock, endingTransactions='{"0": 6}')
    assert clock.now == log_ends.BEHIND_SECONDS
    clock = Clock()
    lenient = {"endingTransactions": '{"0": 6}', "failOnDataLoss": "false", "readTimeoutMs": "2000"}
    assert batch(FakeLog(5), monkeypatch, clock, **lenient) == [Range(0, 0, 4)]
    assert clock.now == 2.0


def test_only_partitions_that_end_too_early_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = moving(10, 7)
    places = '{"0": 10, "1": 7}'
    assert batch(log, monkeypatch, endingTransactions=places) == [Range(0, 0, 9), Range(1, 0, 6)]
    assert log.marks_asked == {0: 3, 1: 1}


def test_a_partition_that_answers_no_longer_has_lost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it moves: what the old owner answered is no reason to leave rows out."""
    log = FakeLog(5)
    log.on_mark = lambda: log.silent.update(log.marks_asked)
    with pytest.raises(UnavailableError, match="partition 0: no answer"):
        batch(log, monkeypatch, endingTransactions='{"0": 10}', failOnDataLoss="false")


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_new_query_begins_where_it_was_asked_to_for_all_that_an_old_owner_answers(
    monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    stream = reader(moving(10), monkeypatch, startingTransactions='{"0": 8}', failOnDataLoss=strict)
    assert stream.initialOffset() == {"0": 8, "cluster": "k1"}


@pytest.mark.parametrize("strict", ["true", "false"])
def test_the_first_batch_of_spark_4_0_does_not_end_where_an_old_owner_says(
    monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    """It asks for the end of the batch before it asks where it begins."""
    monkeypatch.setattr("pyspark.__version__", "4.0.0")
    stream = reader(moving(10), monkeypatch, startingTransactions='{"0": 8}', failOnDataLoss=strict)
    end = stream.latestOffset()
    assert planned(stream, stream.initialOffset(), end) == [(0, 8, 9)]
