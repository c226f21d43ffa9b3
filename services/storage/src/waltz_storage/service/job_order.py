"""Which job runs next, and which needs no disk thread (pure: decisions only).

A server that takes over a thousand partitions asks, fences and marks each of them. Those requests come while
every other partition has an append on its way, and each append is a job with a sync. Behind all of them each
question would wait as long as an append does, and a take-over asks one question after the other. So jobs that
open a session go first, and a question that memory answers needs no job on a thread at all.

Only jobs of different partitions pass each other: the requests of one partition keep their order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from waltz_protocol.messages import storage
from waltz_storage.engine.partition import Partition
from waltz_storage.service.requests import APPENDS, Call, Request

FIRST_IN_A_ROW = 16
"""Jobs that go first before one of the others runs, if any waits: whoever opens sessions again and again
stops nobody."""

_QUESTIONS = frozenset({storage.LastSessionInfoRequest.TYPE, storage.MaxTransactionIdRequest.TYPE})
_OPENING = _QUESTIONS | {
    storage.SetLowWaterMarkRequest.TYPE,
    storage.TruncateRequest.TYPE,
    storage.RecordHeaderRequest.TYPE,
}

T = TypeVar("T")


def opens_session(items: Iterable[Request | Call]) -> bool:
    """Whether a job has a request of those that the opening of a session sends, and feeds do not."""
    return any(isinstance(item, Request) and item.kind in _OPENING for item in items)


def needs_no_disk(partition: Partition | None, fence: int, items: Iterable[Request | Call]) -> bool:
    """Whether memory answers all of it: questions, and appends without records, which ask whether a session
    is the present one. The caller has seen that no job of the partition runs, so memory shows what is
    durable (with a journal a job runs until its batch is committed, and no file is touched here); `fence` is
    the highest session that has arrived, and has to be on the disk before any answer."""
    for item in items:
        if isinstance(item, Call):
            return False
        if item.kind in APPENDS:
            if item.batch is None or item.batch.record_count:
                return False
        elif item.kind not in _QUESTIONS:
            return False
    return partition is not None and fence <= partition.durable_fence and not partition.unfinished


class JobLine(Generic[T]):
    """Jobs that wait for a disk thread. Added on the loop, taken on any thread."""

    def __init__(self) -> None:
        self._first: deque[T] = deque()
        self._others: deque[T] = deque()
        self._in_a_row = 0
        self._lock = threading.Lock()

    def add(self, job: T, *, first: bool) -> None:
        """A job that waits from now on; `first`: before those that are not."""
        with self._lock:
            (self._first if first else self._others).append(job)

    def take(self) -> T:
        """The one that is next; IndexError when none waits."""
        with self._lock:
            if self._first and (self._in_a_row < FIRST_IN_A_ROW or not self._others):
                self._in_a_row += 1
                return self._first.popleft()
            self._in_a_row = 0
            return self._others.popleft()
