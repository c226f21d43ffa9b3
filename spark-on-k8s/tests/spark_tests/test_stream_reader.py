"""The streaming reader without Spark: what it answers when the log, the cluster or the checkpoint is not as
it should be."""

import json
import pickle
import tracemalloc

import pytest

from spark_tests.fake_log import Clock, FakeLog, places, planned, reader
from waltz_spark.errors import DataLossError, OptionError, UnavailableError
from waltz_spark.stream import MARK_SECONDS, SAMPLES_AT_ONCE, WaltzStreamReader

pytest.importorskip("pyspark.sql.streaming.datasource", reason="a limit of a trigger needs Spark 4.2")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows


def test_a_new_query_begins_at_the_end_or_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(5, 0)
    assert reader(log, monkeypatch).initialOffset() == {"0": 5, "1": 0, "cluster": "k1"}
    assert reader(log, monkeypatch, startingTransactions="earliest").initialOffset() == {
        "0": 0,
        "1": 0,
        "cluster": "k1",
    }
    some = reader(log, monkeypatch, partitions="0", startingTransactions='{"0": 3}')
    assert some.initialOffset() == {"0": 3, "cluster": "k1"}
    with pytest.raises(DataLossError, match="partition 0 ends before 5, 6 was asked for"):
        reader(log, monkeypatch, partitions="0", startingTransactions='{"0": 6}').initialOffset()
    with pytest.raises(OptionError, match="there is no partition 2"):
        reader(log, monkeypatch, partitions="2").initialOffset()


def test_without_news_the_offset_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(5, 7)
    stream = reader(log, monkeypatch)
    start = stream.initialOffset()
    assert json.dumps(stream.latestOffset()) == json.dumps(start)  # Spark 4.0 and 4.1
    first = stream.latestOffset(start, ReadAllAvailable())
    assert first == start | {"began": {"0": 5, "1": 7}}
    assert planned(stream, start, first) == []
    assert json.dumps(stream.latestOffset(first, ReadAllAvailable())) == json.dumps(first)
    assert planned(stream, first, first) == []
    log.ends = [6, 7]
    assert stream.latestOffset(first, ReadAllAvailable()) == {"0": 6, "1": 7, "cluster": "k1"}


def test_limits_are_kept_and_ignored_when_spark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(90, 10)
    stream = reader(log, monkeypatch, startingTransactions="earliest", maxTransactionsPerTrigger="10")
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    end = stream.latestOffset(start, limit)
    assert places(end) == {"0": 9, "1": 1, "cluster": "k1"}
    assert planned(stream, start, end) == [(0, 0, 8), (1, 0, 0)]
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 90, "1": 10, "cluster": "k1"}
    assert stream.reportLatestOffset() == {"0": 90, "1": 10, "cluster": "k1"}


def test_a_limit_in_bytes_follows_the_size_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(100, 100)
    stream = reader(log, monkeypatch, startingTransactions="earliest", maxBytesPerTrigger="2000")
    start = stream.initialOffset()
    assert stream.getDefaultReadLimit() == ReadMaxBytes(2000)
    assert places(stream.latestOffset(start, ReadMaxBytes(2000))) == {"0": 10, "1": 10, "cluster": "k1"}
    log.payload_bytes = 1_000_000
    assert places(stream.latestOffset(start, ReadMaxBytes(2000))) == {"0": 1, "1": 0, "cluster": "k1"}
    both = reader(
        log,
        monkeypatch,
        startingTransactions="earliest",
        maxBytesPerTrigger="999999999",
        maxTransactionsPerTrigger="4",
    )
    assert both.latestOffset(start, both.getDefaultReadLimit()) == {"0": 2, "1": 2, "cluster": "k1"}


def test_the_sample_of_payloads_is_never_in_memory_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is any payload longer than it takes to see its size."""
    log = FakeLog(*[100] * 16)
    log.payload_bytes = 1 << 20
    stream = reader(log, monkeypatch, startingTransactions="earliest", maxBytesPerTrigger="2000")
    start = stream.initialOffset()
    tracemalloc.start()
    try:
        stream.latestOffset(start, ReadMaxBytes(2000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 < log.asked_at_once <= SAMPLES_AT_ONCE
    assert peak < (SAMPLES_AT_ONCE + 2) * log.payload_bytes


def test_few_transactions_wait_for_more_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    log, clock = FakeLog(0, 0), Clock()
    stream = reader(log, monkeypatch, clock, minTransactionsPerTrigger="10", maxTriggerDelayMs="5000")
    offset = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    log.ends = [3, 0]
    offset = stream.latestOffset(offset, limit)  # nothing was read before: it does not wait
    assert places(offset) == {"0": 3, "1": 0, "cluster": "k1"}
    log.ends = [5, 6]
    assert stream.latestOffset(offset, limit) == offset
    clock.now += 4.9
    assert stream.latestOffset(offset, limit) == offset
    clock.now += 0.1
    offset = stream.latestOffset(offset, limit)
    assert offset == {"0": 5, "1": 6, "cluster": "k1"}
    log.ends = [15, 6]
    assert stream.latestOffset(offset, limit) == {"0": 15, "1": 6, "cluster": "k1"}
    assert stream.latestOffset(offset, ReadAllAvailable()) == {"0": 15, "1": 6, "cluster": "k1"}


def test_available_now_stops_at_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(10, 4)
    stream = reader(log, monkeypatch, startingTransactions="earliest", maxTransactionsPerTrigger="9")
    offset = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    seen = []
    for _ in range(5):
        log.ends = [end + 100 for end in log.ends]
        following = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if following == offset:
            break
        seen += [
            (p, i) for p, first, last in planned(stream, offset, following) for i in range(first, last + 1)
        ]
        offset = following
    assert sorted(seen) == [(0, i) for i in range(10)] + [(1, i) for i in range(4)]
    assert offset == {"0": 10, "1": 4, "cluster": "k1"}
    late = {"0": 50, "1": 4, "cluster": "k1"}  # a restart of a query that had read further
    assert stream.latestOffset(late, stream.getDefaultReadLimit()) == late


def test_available_now_reads_a_partition_that_does_not_answer_up_to_its_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An offset without it would end the query as if all of it was read."""
    log, clock = FakeLog(10, 7), Clock()
    stream = reader(log, monkeypatch, clock, startingTransactions="earliest", readTimeoutMs="60000")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    log.silent = {1}
    log.ends = [20, 20]
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert places(end) == {"0": 10, "1": 7, "cluster": "k1"}
    assert planned(stream, start, end) == [(0, 0, 9), (1, 0, 6)]
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    late = {"0": 10, "1": 9, "cluster": "k1"}  # a restart of a query that had read further
    assert stream.latestOffset(late, stream.getDefaultReadLimit()) == late
    clock.now += 60
    with pytest.raises(UnavailableError, match="partition 1 has not reported its end"):
        stream.latestOffset(start, stream.getDefaultReadLimit())


def test_available_now_keeps_its_limits_where_a_partition_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog(10, 10)
    stream = reader(log, monkeypatch, startingTransactions="earliest", maxTransactionsPerTrigger="4")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    log.silent = {1}
    assert places(stream.latestOffset(start, ReadMaxRows(4))) == {"0": 2, "1": 2, "cluster": "k1"}


def test_a_partition_that_does_not_answer_waits_alone_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, clock = FakeLog(5, 5), Clock()
    stream = reader(log, monkeypatch, clock, readTimeoutMs="60000")
    start = stream.initialOffset()
    log.ends = [9, 9]
    log.silent = {1}
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 9, "1": 5, "cluster": "k1"}
    clock.now += 59
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 9, "1": 5, "cluster": "k1"}
    log.silent = set()
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 9, "1": 9, "cluster": "k1"}
    log.silent = {1}
    stream.latestOffset(start, ReadAllAvailable())
    clock.now += 60
    with pytest.raises(UnavailableError, match="partition 1 has not reported its end for 60 s"):
        stream.latestOffset(start, ReadAllAvailable())


def slow_reader(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> tuple[FakeLog, Clock, WaltzStreamReader, dict[str, object]]:
    """Partition 1 answers a question after this time, at two triggers and at what comes of them."""
    log, clock = FakeLog(5, 5), Clock()
    stream = reader(log, monkeypatch, clock, readTimeoutMs="60000")
    start = stream.initialOffset()
    log.ends, log.clock, log.answers_after = [9, 9], clock, {1: seconds}
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 9, "1": 5, "cluster": "k1"}
    return log, clock, stream, start


def test_a_partition_that_is_briefly_silent_at_triggers_far_apart_ends_no_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In between nobody has asked."""
    _, clock, stream, start = slow_reader(monkeypatch, 5.0)
    clock.now += 600
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 9, "1": 9, "cluster": "k1"}
    clock.now += 600
    assert places(stream.latestOffset(start, ReadAllAvailable())) == {"0": 9, "1": 5, "cluster": "k1"}


def test_a_partition_is_asked_for_the_whole_time_before_its_silence_ends_a_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, clock, stream, start = slow_reader(monkeypatch, 1e9)
    clock.now += 600
    with pytest.raises(UnavailableError, match="partition 1 has not reported its end for 660 s"):
        stream.latestOffset(start, ReadAllAvailable())
    assert clock.now == MARK_SECONDS + 600 + 60


def test_a_partition_that_is_asked_all_the_time_is_not_asked_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    _, clock, stream, start = slow_reader(monkeypatch, 1e9)
    with pytest.raises(UnavailableError, match="partition 1 has not reported its end for 60 s"):
        while True:
            stream.latestOffset(start, ReadAllAvailable())
    assert clock.now == MARK_SECONDS + 60


def test_an_end_that_goes_back_for_a_moment_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(50)
    stream = reader(log, monkeypatch)
    start = stream.initialOffset()
    log.ends = [10]
    log.on_mark = lambda: log.ends.__setitem__(0, min(log.ends[0] + 10, 50))
    assert places(stream.latestOffset(start, ReadAllAvailable())) == start
    assert stream.reportLatestOffset() == start


def test_a_log_that_lost_its_end_is_an_error_or_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(20, 7)
    start = {"0": 50, "1": 7, "cluster": "k1"}
    with pytest.raises(
        DataLossError, match=r"partition 0 was read up to transaction 49, and its log ends before 20"
    ):
        reader(log, monkeypatch).latestOffset(start, ReadAllAvailable())
    follower = reader(log, monkeypatch, failOnDataLoss="false")
    end = follower.latestOffset(start, ReadAllAvailable())
    assert end == {"0": 20, "1": 7, "cluster": "k1"}
    assert planned(follower, start, end) == []
    log.ends[0] = 25
    assert planned(follower, end, follower.latestOffset(end, ReadAllAvailable())) == [(0, 20, 24)]


def test_the_checkpoint_of_another_cluster_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(20)
    start = {"0": 5, "cluster": "other"}
    with pytest.raises(DataLossError, match=r"belongs to another cluster \(key other, this one has k1\)"):
        reader(log, monkeypatch).latestOffset(start, ReadAllAvailable())
    follower = reader(log, monkeypatch, failOnDataLoss="false")
    end = follower.latestOffset(start, ReadAllAvailable())
    assert planned(follower, start, end) == [(0, 0, 19)]
    with pytest.raises(OptionError, match="the checkpoint is not one of this source"):
        follower.latestOffset({"offset": 7}, ReadAllAvailable())


def test_a_partition_that_is_not_chosen_any_more_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(20, 30)
    start = {"0": 5, "1": 6, "cluster": "k1"}
    with pytest.raises(DataLossError, match="partition 1 is in the checkpoint and is no longer read"):
        reader(log, monkeypatch, partitions="0").latestOffset(start, ReadAllAvailable())
    narrowed = reader(log, monkeypatch, partitions="0", failOnDataLoss="false")
    assert narrowed.latestOffset(start, ReadAllAvailable()) == {"0": 20, "1": 6, "cluster": "k1"}
    widened = reader(log, monkeypatch)
    end = widened.latestOffset({"0": 5, "cluster": "k1"}, ReadAllAvailable())
    assert planned(widened, {"0": 5, "cluster": "k1"}, end) == [(0, 5, 19), (1, 0, 29)]


def test_tasks_get_a_copy_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(FakeLog(5), monkeypatch)
    stream.initialOffset()
    copied = pickle.loads(pickle.dumps(stream))
    assert vars(copied) == {"_options": vars(stream)["_options"]}
    stream.commit({"0": 5, "cluster": "k1"})


# -- a batch that was not committed is planned again ---------------------------------------------------------


@pytest.mark.parametrize("changed", [{}, {"startingTransactions": '{"0": 12, "1": 0}'}])
def test_the_first_batch_is_repeated_from_where_it_began(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    """Spark asks a restarted query once more where it begins, and may be given another place."""
    log = FakeLog(10, 4)
    stream = reader(log, monkeypatch, startingTransactions="earliest")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    log.ends = [20, 9]
    again = reader(log, monkeypatch, None, **changed)
    assert planned(again, again.initialOffset(), json.loads(json.dumps(end))) == [(0, 0, 9), (1, 0, 3)]
    assert planned(again, end, end) == []
    following = again.latestOffset(end, ReadAllAvailable())
    assert following == {"0": 20, "1": 9, "cluster": "k1"}
    assert planned(again, end, following) == [(0, 10, 19), (1, 4, 8)]


@pytest.mark.parametrize("starting", ["latest", "earliest", '{"0": 0, "1": 3}'])
def test_a_query_that_is_asked_twice_begins_at_one_place(
    monkeypatch: pytest.MonkeyPatch, starting: str
) -> None:
    """Spark asks before the end of the first batch, and again when it plans it; meanwhile a partition was
    silent."""
    log = FakeLog(5, 7)
    stream = reader(log, monkeypatch, startingTransactions=starting)
    start = stream.initialOffset()
    log.silent = {1}
    end = stream.latestOffset(start, ReadAllAvailable())
    log.silent = set()
    log.ends = [9, 9]
    assert stream.initialOffset() == start
    first = start["0"]
    assert planned(stream, start, end) == ([(0, first, 4)] if first < 5 else [])


def test_a_first_batch_of_an_earlier_release_is_not_skipped_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset does not say where it began."""
    log = FakeLog(20, 9)
    end = {"0": 10, "1": 4, "cluster": "k1"}
    line = "the first batch of the query was not committed: it ends before transaction 10 of partition 0, and would begin at 20 now"
    stream = reader(log, monkeypatch)
    with pytest.raises(DataLossError, match=line):
        stream.partitions(stream.initialOffset(), end)
    lenient = reader(log, monkeypatch, failOnDataLoss="false")
    assert planned(lenient, lenient.initialOffset(), end) == []
    named = reader(log, monkeypatch, startingTransactions='{"0": 3, "1": 0}')
    assert planned(named, named.initialOffset(), end) == [(0, 3, 9), (1, 0, 3)]


def test_a_repeated_batch_of_another_cluster_is_not_read_from_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog(20)
    starts: list[dict[str, object]] = [{"0": 0, "cluster": "k1"}, {"0": 3, "cluster": "other"}]
    end = {"0": 5, "cluster": "other"}
    for start in starts:
        with pytest.raises(DataLossError, match=r"belongs to another cluster \(key other, this one has k1\)"):
            reader(log, monkeypatch).partitions(start, end)
    follower = reader(log, monkeypatch, failOnDataLoss="false")
    assert planned(follower, starts[1], end) == []
    assert planned(follower, end, follower.latestOffset(end, ReadAllAvailable())) == [(0, 0, 19)]


def test_a_repeated_batch_of_a_log_that_was_restored_is_an_error_or_is_clipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog(5, 30)
    start, end = {"0": 2, "1": 6, "cluster": "k1"}, {"0": 95, "1": 30, "cluster": "k1"}
    with pytest.raises(
        DataLossError, match="partition 0 was read up to transaction 94, and its log ends before 5"
    ):
        reader(log, monkeypatch).partitions(start, end)
    follower = reader(log, monkeypatch, failOnDataLoss="false")
    assert planned(follower, start, end) == [(0, 2, 4), (1, 6, 29)]
    following = follower.latestOffset(end, ReadAllAvailable())
    assert following == {"0": 5, "1": 30, "cluster": "k1"}
    assert planned(follower, end, following) == []


def test_a_repeated_batch_waits_for_an_owner_that_knows_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(5)
    log.on_mark = lambda: log.ends.__setitem__(0, min(log.ends[0] + 10, 50))
    start, end = {"0": 2, "cluster": "k1"}, {"0": 50, "cluster": "k1"}
    assert planned(reader(log, monkeypatch), start, end) == [(0, 2, 49)]


def test_a_batch_that_was_just_planned_costs_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(10)
    stream = reader(log, monkeypatch, startingTransactions="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    log.silent = {0}
    log.on_mark = lambda: pytest.fail("the end of the log was asked for")
    assert planned(stream, start, end) == [(0, 0, 9)]
