"""Each checker is shown a history that breaks its invariant, and only that one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.checkers import payload
from tests.sim.checkers.history import Outcome
from tests.sim.checkers.story import Story
from tests.sim.checkers.suite import check_all
from waltz_protocol.locks import LockId
from waltz_protocol.types import Record, ReqId

A, B = LockId("lock", 1), LockId("lock", 2)


def replaced(record: Record, **fields: Any) -> Record:
    return record._replace(**fields)


def test_a_good_history_is_clean() -> None:
    story = Story(partitions=2)
    story.append("bank", {"from": 0, "to": 1, "amount": 5, "from_had": 100, "to_had": 100}, write_locks=[A])
    story.append("counters", {"counter": 0, "add": 3}, append_locks=[B], partition=1)
    story.append("counters", {"counter": 0, "sum": 3}, read_locks=[B], as_of=0, partition=1)
    story.append("registers", {"register": 0, "old": -1}, write_locks=[A], as_of=0)
    story.append(
        "duty",
        {"pair": 0, "who": 0, "on": False, "other_was": True},
        write_locks=[B],
        read_locks=[A],
        as_of=1,
    )
    lost = story.invoke(write_locks=[A], as_of=0)
    story.history.failed(lost, "LockConflictError", 1)
    story.history.unknown(story.invoke(), "cancelled")
    kept = story.invoke()
    story.commit(kept)
    story.history.unknown(kept, "OutcomeUnknownError")
    story.commit(story.invoke())  # its caller was killed
    story.feed()
    story.feed(after=1)
    state = story.history.database("db", 0)
    state.apply([(0, 0), (1, None)], 1)
    story.history.mark_read("reader", "reader/1", 0, story.history.tick(), 4, 2, 3)
    found, counts = check_all(story.history, story.truth())
    assert not story.history.violations
    assert not found
    assert counts["real lock conflicts"] == 1
    assert counts["unknown, committed"] == 1
    assert counts["pending, committed"] == 1


# -- the log -------------------------------------------------------------------------------------------------


def test_dense_a_gap_between_ids() -> None:
    story = Story()
    for _ in range(3):
        story.append()
    truth = story.truth()
    truth.replicas.clear()
    del truth.log[0][1]
    truth.high_water_marks.clear()
    assert "dense" in story.broken(truth)


def test_dense_the_owner_says_another_mark() -> None:
    story = Story()
    story.append()
    truth = story.truth()
    truth.high_water_marks[0] = 5
    assert story.broken(truth) == {"dense"}


def test_acknowledged_and_not_there() -> None:
    story = Story()
    story.append()
    story.history.committed(story.invoke(), None)
    assert story.broken() == {"acknowledged"}


def test_lost_beyond_the_end_of_the_log() -> None:
    story = Story()
    story.append()
    story.append()
    truth = story.truth()
    del truth.log[0][1]
    truth.high_water_marks[0] = 0
    assert story.broken(truth) == {"lost", "acknowledged"}


def test_acknowledged_at_another_id() -> None:
    story = Story()
    first, second = story.invoke(), story.invoke()
    story.commit(first), story.commit(second)
    story.history.committed(first, 1)
    assert "acknowledged" in story.broken()


def test_failed_and_committed() -> None:
    story = Story()
    op = story.invoke()
    story.commit(op)
    story.history.failed(op, "AppendFailedError")
    assert story.broken() == {"failed_committed", "failed_on_replica"}


def test_duplicate_the_same_append_twice() -> None:
    story = Story()
    op = story.append()
    twice = story.log[0][0]
    story.log[0].append(replaced(twice, transaction_id=1, req_id=ReqId(1, 1, 0, 99)))
    assert op.outcome is Outcome.COMMITTED
    assert story.broken() == {"duplicate", "acknowledged"}


def test_duplicate_of_an_append_without_an_outcome() -> None:
    story = Story()
    story.commit(story.invoke())
    story.log[0].append(replaced(story.log[0][0], transaction_id=1, req_id=ReqId(1, 1, 0, 99)))
    assert story.broken() == {"duplicate"}


def test_duplicate_req_id() -> None:
    story = Story()
    story.append()
    story.append()
    story.log[0][1] = replaced(story.log[0][1], req_id=story.log[0][0].req_id)
    assert story.broken() == {"duplicate_req_id"}


def test_foreign_a_record_that_nobody_wrote() -> None:
    story = Story()
    story.append()
    story.log[0].append(Record(1, ReqId(9, 9, 0, 9), 0, b"77|blind|{}", 0))
    truth = story.truth()
    truth.replicas.clear()
    assert story.broken(truth) == {"foreign"}


def test_bytes_other_data_than_was_appended() -> None:
    story = Story()
    story.append()
    story.log[0][0] = replaced(story.log[0][0], data=payload.encode(0, "blind", {"other": 1}))
    truth = story.truth()
    truth.replicas.clear()
    assert story.broken(truth) == {"bytes"}


def test_bytes_another_header_than_was_appended() -> None:
    story = Story()
    story.append()
    story.log[0][0] = replaced(story.log[0][0], header=7)
    assert story.broken() == {"bytes"}


def test_real_time_an_append_before_one_that_was_over() -> None:
    story = Story()
    story.append(process="a")
    late = story.invoke(process="b")
    early = story.invoke(process="c")
    story.commit(late)
    story.commit(early)
    story.history.committed(early, 2)
    later = story.invoke(process="d")  # knows that 2 is committed
    story.history.committed(later, 1)
    story.history.unknown(late, "cancelled")
    truth = story.truth()
    truth.log[0][1] = replaced(story.log[0][1], data=later.data)
    truth.replicas.clear()
    assert story.broken(truth) == {"real_time"}


def test_pipeline_order() -> None:
    story = Story()
    first, second = story.invoke(pipeline="p"), story.invoke(pipeline="p")
    story.told(second)
    story.told(first)
    assert story.broken() == {"pipeline_order"}


# -- what readers are shown ----------------------------------------------------------------------------------


def test_fork_two_readers_are_shown_different_records() -> None:
    story = Story()
    story.append()
    story.feed()
    other = story.history.feed("other", 0, -1)
    record = story.log[0][0]
    other.delivered(0, ReqId(5, 5, 0, 5), record.header, record.data, True)
    assert story.broken() == {"fork"}
    assert "storage" not in str(story.history.violations[0])


def test_fork_another_payload_for_the_same_id() -> None:
    story = Story()
    story.append()
    story.feed()
    story.history.data_read(0, 0, b"something else", "reader")
    assert story.broken() == {"fork"}


def test_fork_another_payload_before_any_feed() -> None:
    story = Story()
    story.append()
    story.history.data_read(0, 0, b"something else", "reader")
    assert story.broken() == {"fork"}


def test_fork_a_reader_was_shown_what_the_log_does_not_have() -> None:
    story = Story()
    story.append()
    story.append()
    story.feed()
    truth = story.truth()
    truth.log[0][1] = replaced(truth.log[0][1], req_id=ReqId(8, 8, 0, 8))
    truth.replicas.clear()
    assert story.broken(truth) == {"fork"}


@pytest.mark.parametrize(
    ("ids", "after"), [((0, 2), -1), ((0, 1, 1), -1), ((1,), -1), ((2,), 0), ((1, 0), 0)]
)
def test_feed_order(ids: tuple[int, ...], after: int) -> None:
    story = Story()
    for _ in range(3):
        story.append()
    feed = story.history.feed("reader", 0, after)
    for transaction_id in ids:
        record = story.log[0][transaction_id]
        feed.delivered(transaction_id, record.req_id, record.header, record.data, True)
    assert story.broken() == {"feed_order"}


def test_feed_start_a_feed_from_now_on_shows_the_past() -> None:
    story = Story()
    story.append()
    record = story.log[0][0]
    feed = story.history.feed("reader", 0, None, own_floor=0)
    feed.delivered(0, record.req_id, record.header, record.data, True)
    assert story.broken() == {"feed_start"}


def test_feed_end_too_early() -> None:
    story = Story()
    for _ in range(3):
        story.append()
    story.feed(until=2).ended(2)
    assert story.broken() == {"feed_end"}


def test_feed_data_missing() -> None:
    story = Story()
    story.append()
    record = story.log[0][0]
    story.history.feed("reader", 0, -1).delivered(0, record.req_id, record.header, None, True)
    assert story.broken() == {"feed_data"}


@pytest.mark.parametrize(("value", "own"), [(5, -1), (0, 1), (-2, -1)])
def test_mark(value: int, own: int) -> None:
    story = Story()
    story.append()
    story.append()
    story.history.mark_read("reader", "reader/1", 0, story.history.tick(), own, own, min(value, 1))
    story.history.mark_reads[-1].value = value
    assert story.broken() == {"mark"}


def test_lost_a_mark_beyond_the_log() -> None:
    story = Story()
    story.append()
    story.history.mark_read("reader", "reader/1", 0, story.history.tick(), 0, 0, 3)
    assert story.broken() == {"lost", "mark"}


# -- outcomes and locks --------------------------------------------------------------------------------------


def test_outcome_once() -> None:
    story = Story()
    op = story.append()
    story.history.unknown(op, "cancelled")
    assert story.broken() == {"outcome_once"}


def test_outcome_kind_unknown_without_a_reason() -> None:
    story = Story()
    story.history.unknown(story.invoke(), "LockConflictError")
    assert story.broken() == {"outcome_kind"}


@pytest.mark.parametrize(
    "locks",
    [
        {"write_locks": [A], "read_locks": []},
        {"write_locks": [], "read_locks": [A]},
        {"write_locks": [B], "read_locks": [B, A]},
    ],
)
@pytest.mark.parametrize("kind", ["write_locks", "append_locks"])
def test_serializable(kind: str, locks: dict[str, Any]) -> None:
    story = Story()
    story.append()
    touching: dict[str, Any] = {kind: [A]}
    story.append(**touching)
    story.append(as_of=0, **locks)
    assert story.broken() == {"serializable"}


def test_serializable_append_and_read_locks_of_others_do_not_conflict() -> None:
    story = Story()
    story.append()
    story.append(read_locks=[A], as_of=0)
    story.append(append_locks=[A])
    story.append(append_locks=[A])
    story.append(write_locks=[A], as_of=3)
    assert story.broken() == set()


@pytest.mark.parametrize(("conflict", "as_of"), [(2, 2), (1, 2), (9, 0)])
def test_lock_failure_with_an_impossible_mark(conflict: int, as_of: int) -> None:
    story = Story()
    for _ in range(3):
        story.append(write_locks=[A])
    story.history.failed(story.invoke(write_locks=[A], as_of=as_of), "LockConflictError", conflict)
    assert story.broken() == {"lock_failure"}


def test_lock_failure_without_locks() -> None:
    story = Story()
    story.append(write_locks=[A])
    story.history.failed(story.invoke(append_locks=[A], as_of=-1), "LockConflictError", 0)
    assert story.broken() == {"lock_failure"}


def test_false_conflicts_are_counted() -> None:
    story = Story()
    story.append(write_locks=[A])
    story.history.failed(story.invoke(write_locks=[B], as_of=-1), "LockConflictError", 0)
    found, counts = check_all(story.history, story.truth())
    assert not found
    assert counts["false lock conflicts"] == 1


# -- replicas, progress --------------------------------------------------------------------------------------


def test_replicas_one_lacks_the_last_record() -> None:
    story = Story()
    story.append()
    truth = story.truth()
    truth.replicas[0]["storage-2"].pop()
    assert story.broken(truth) == {"replicas"}


def test_replicas_one_holds_another_record() -> None:
    story = Story()
    story.append()
    truth = story.truth()
    records = truth.replicas[0]["storage-2"]
    records[0] = replaced(records[0], req_id=ReqId(3, 3, 0, 3))
    assert story.broken(truth) == {"replicas"}


def test_checksum() -> None:
    story = Story()
    story.append()
    truth = story.truth()
    records = truth.replicas[0]["storage-2"]
    records[0] = replaced(records[0], checksum=1)
    assert story.broken(truth) == {"checksum"}


def test_replicas_may_hold_more_than_is_committed() -> None:
    story = Story()
    story.append()
    truth = story.truth()
    record = story.log[0][0]
    truth.replicas[0]["storage-2"].append(replaced(record, transaction_id=1))
    assert story.broken(truth) == set()


def test_progress_an_append_fails_long_after_the_last_fault() -> None:
    story = Story()
    truth = story.truth()
    truth.healed_at = story.seconds
    story.seconds += 100.0
    op = story.invoke()
    op.deadline = 30.0
    story.history.failed(op, "DeadlineExceededError")
    assert story.broken(truth) == {"progress"}
