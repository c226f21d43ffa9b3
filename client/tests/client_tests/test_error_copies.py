"""Errors of the client go between processes, as those of any library: `multiprocessing` pickles them, and an
error that cannot be read there makes its pool wait forever."""

from __future__ import annotations

import copy
import pickle

import pytest

import waltz_client.errors
import waltz_client.sql.errors
from client_tests.test_error_hierarchy import classes_of
from waltz_client import (
    ClientAheadError,
    Committed,
    LockConflictError,
    LockId,
    NoQuorumError,
    NotAppliedError,
    OutcomeUnknownError,
    PartitionInactiveError,
    PartitionNotFoundError,
    ProducerFencedError,
    SequenceInUseError,
    SequenceUnsupportedError,
    ServerOverloadedError,
    StopApplyingError,
    TransactionTooLargeError,
    ViewAheadError,
)
from waltz_client.errors import AppendError, Outcome
from waltz_client.sql import DatabaseUnavailableError, HighWaterMarkMovedError, SqlApplyError


class Own(StopApplyingError):
    """Of an application."""

    def __init__(self, order: int, *, why: str) -> None:
        super().__init__(f"order {order}: {why}")
        self.order = order


WITH_FACTS: list[Exception] = [
    PartitionNotFoundError(3, 2),
    PartitionInactiveError(1),
    ClientAheadError(1, 7, "the server's log ends at 5"),
    LockConflictError(partition_id=1, conflicting_high_water_mark=7, lock=LockId("account", 4), winner=9),
    ViewAheadError(partition_id=1, as_of=7, high_water_mark=5),
    ServerOverloadedError(partition_id=1, retry_after_ms=20),
    NoQuorumError(partition_id=1, detail="node 3 is missing"),
    SequenceInUseError(partition_id=1, sequence=4, transaction_id=None),
    SequenceUnsupportedError(partition_id=1, version=4),
    ProducerFencedError(
        partition_id=1,
        producer="orders",
        epoch=1,
        newer_epoch=2,
        outcome=Outcome.UNKNOWN,
        why="it was deleted",
    ),
    NotAppliedError(Committed(1, 7), "not within 3 s"),
    TransactionTooLargeError("too large", partition_id=1, outcome=Outcome.UNKNOWN),
    SqlApplyError(1, 7, ValueError("no")),
    DatabaseUnavailableError(1, None, 30.0, OSError("gone")),
    HighWaterMarkMovedError(1, 7, 3),
    Own(5, why="poison"),
]
SIMPLE: list[Exception] = [
    kind("why", partition_id=1) if issubclass(kind, AppendError) else kind("why")
    for kind in classes_of(waltz_client.errors) + classes_of(waltz_client.sql.errors)
    if kind not in map(type, WITH_FACTS)
]


@pytest.mark.parametrize("error", WITH_FACTS + SIMPLE, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: Exception) -> None:
    error.add_note("a note")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.args == error.args
        assert vars(other) == vars(error)


def test_what_caused_it_is_left_behind_as_with_every_error() -> None:
    error = OutcomeUnknownError("why", partition_id=1)
    error.__cause__ = ValueError("of this process")
    assert pickle.loads(pickle.dumps(error)).__cause__ is None
