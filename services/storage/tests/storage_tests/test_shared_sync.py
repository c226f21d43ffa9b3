"""One sync for several writers: who waits for which, and whom a failed one concerns."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from waltz_storage.engine.shared_sync import PartitionLocks, SharedSync

LIMIT_SECONDS = 20.0


class Disk:
    """A file whose syncs wait for the test. `durable`: what a sync that ended well has covered."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.durable: set[str] = set()
        self.syncs = 0
        self.failures: list[OSError] = []
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.shared = SharedSync(self.sync)

    def sync(self) -> None:
        covered = list(self.written)
        self.syncs += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=LIMIT_SECONDS)
        if self.failures:
            raise self.failures.pop(0)
        self.durable.update(covered)

    def write(self, what: str) -> None:
        with self.shared.durable():
            self.written.append(what)
        assert what in self.durable

    def wait_begun(self) -> None:
        assert self.begun.acquire(timeout=LIMIT_SECONDS)


def waiting(disk: Disk, count: int) -> Callable[[], bool]:
    """So many threads are inside."""
    return lambda: len(disk.shared._states) == count


def until(condition: Callable[[], bool]) -> None:
    """Wait for other threads."""
    event = threading.Event()
    for _ in range(int(LIMIT_SECONDS / 0.005)):
        if condition():
            return
        event.wait(0.005)
    raise AssertionError("it did not come")


def test_safety_c1_writers_share_a_sync_that_began_after_their_writes() -> None:
    disk = Disk()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(disk.write, "first")
        disk.wait_begun()
        others: list[Future[None]] = [pool.submit(disk.write, name) for name in ("second", "third", "fourth")]
        until(waiting(disk, 4))
        until(lambda: len(disk.written) == 4)
        disk.may_end.release()
        first.result(LIMIT_SECONDS)
        disk.wait_begun()
        assert disk.durable == {"first"}
        assert not any(other.done() for other in others)
        disk.may_end.release(3)  # one that came late has one of its own
        for other in others:
            other.result(LIMIT_SECONDS)
    assert disk.syncs in (2, 3)
    assert not disk.shared._states


def test_safety_c1_a_write_that_is_not_done_is_not_covered() -> None:
    disk = Disk()
    entered, may_write = threading.Event(), threading.Event()

    def slow_writer() -> None:
        with disk.shared.durable():
            entered.set()
            assert may_write.wait(LIMIT_SECONDS)
            disk.written.append("slow")
        assert "slow" in disk.durable

    disk.may_end.release(2)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(slow_writer)
        assert entered.wait(LIMIT_SECONDS)
        disk.write("first")
        may_write.set()
        slow.result(LIMIT_SECONDS)
    assert disk.syncs == 2


def test_safety_c3_a_failed_sync_fails_everybody_who_had_written() -> None:
    """Also who did not wait for it yet: the next sync would say nothing of what the kernel dropped."""
    disk = Disk()
    disk.failures = [OSError(errno.EIO, "gone")]
    entered, may_write = threading.Event(), threading.Event()

    def slow_writer() -> None:
        with disk.shared.durable():
            disk.written.append("slow")
            entered.set()
            assert may_write.wait(LIMIT_SECONDS)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(disk.write, "first")
        disk.wait_begun()
        slow = pool.submit(slow_writer)
        assert entered.wait(LIMIT_SECONDS)
        waits = pool.submit(disk.write, "waits")
        until(waiting(disk, 3))
        until(lambda: "waits" in disk.written)
        disk.may_end.release()
        for one in (first, waits):
            assert isinstance(one.exception(LIMIT_SECONDS), OSError)
        may_write.set()
        error = slow.exception(LIMIT_SECONDS)
        assert isinstance(error, OSError)
        assert error.errno == errno.EIO
        assert disk.syncs == 1
        disk.may_end.release()
        disk.write("later")  # whoever begins after it is not concerned
    assert disk.durable >= {"later"}


def test_a_write_that_failed_syncs_nothing() -> None:
    disk = Disk()
    with pytest.raises(ZeroDivisionError), disk.shared.durable():
        raise ZeroDivisionError
    assert (disk.syncs, disk.shared._states) == (0, {})


def test_one_partition_has_one_lock() -> None:
    locks = PartitionLocks()
    assert locks.of(3) is locks.of(3)
    with ExitStack() as stack:
        for partition in range(8):
            stack.enter_context(locks.of(partition))
