"""The streaming reader as Spark 4.0 and 4.1 use it: they ask how far the log goes, and do not say where the
query is."""

import pytest

from spark_tests.fake_log import FakeLog, planned, reader
from waltz_spark.errors import DataLossError, UnavailableError


@pytest.fixture(autouse=True)
def old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed."""
    monkeypatch.setattr("pyspark.__version__", "4.0.0")


def test_a_partition_without_an_answer_keeps_its_place_in_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out of the offset it would be read again from its beginning."""
    log = FakeLog(5, 7)
    stream = reader(log, monkeypatch, readTimeoutMs="10000")
    before = stream.latestOffset()
    log.silent.add(1)
    log.ends = [6, 8]
    after = stream.latestOffset()
    assert after == {"0": 6, "1": 7, "cluster": "k1"}
    assert planned(stream, before, after) == [(0, 5, 5)]
    log.silent.clear()
    assert planned(stream, after, stream.latestOffset()) == [(1, 7, 7)]


def test_a_partition_that_has_never_answered_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(5, 7)
    log.silent.add(1)
    with pytest.raises(UnavailableError, match="partition 1: no answer"):
        reader(log, monkeypatch, readTimeoutMs="10000").latestOffset()


def test_an_old_owner_moves_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(5)
    stream = reader(log, monkeypatch)
    before = stream.latestOffset()
    log.ends = [3]
    assert stream.latestOffset() == before


def test_the_checkpoint_is_compared_with_the_log_when_a_trigger_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog(5, 7)
    cases = [
        ({"0": 5, "1": 7, "cluster": "other"}, "belongs to another cluster"),
        ({"0": 6, "1": 7, "cluster": "k1"}, "partition 0 was read up to transaction 5"),
        ({"0": 5, "1": 7, "2": 1, "cluster": "k1"}, "partition 2 is in the checkpoint and is no longer read"),
    ]
    for start, line in cases:
        stream = reader(log, monkeypatch)
        with pytest.raises(DataLossError, match=line):
            stream.partitions(start, stream.latestOffset())
    lenient = reader(log, monkeypatch, failOnDataLoss="false")
    assert planned(lenient, cases[1][0], lenient.latestOffset()) == []


def test_the_first_batch_does_not_end_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """That Spark asks for its end first."""
    log = FakeLog(5, 7)
    stream = reader(log, monkeypatch)
    end = stream.latestOffset()
    log.ends = [6, 9]
    start = stream.initialOffset()
    assert planned(stream, start, end) == []
    assert planned(stream, end, stream.latestOffset()) == [(0, 5, 5), (1, 7, 8)]
