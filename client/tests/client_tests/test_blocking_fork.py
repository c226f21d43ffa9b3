"""The blocking facade after a fork: the child has a copy of the client but not its thread, so a call there
would wait forever."""

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

import pytest

from client_tests.test_blocking import FakeThread, connect
from waltz_client import Append, Committed, TransactionContext, UsageError
from waltz_client.blocking import BlockingFeed, BlockingWaltzClient

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    # Forking a process that has threads is what is tried here; Python warns of it.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture
def fakes() -> Iterator[FakeThread]:
    thread = FakeThread()
    yield thread
    thread.close()


def in_child(job: Callable[[], str]) -> str:
    """What the job returns in a child made by fork; a job that takes 20 seconds is ended and an error."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, job().encode())
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        if not select.select([reader], [], [], 20)[0]:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("the child hangs")
        return os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)
        os.waitpid(pid, 0)


class Nothing(TransactionContext):
    def partition_id(self, num_partitions: int) -> int:
        return 0

    def execute(self, builder: object) -> bool:
        return False


CALLS: dict[str, Callable[[BlockingWaltzClient], object]] = {
    "append": lambda client: client.append(partition=0, data=b"x", deadline_seconds=0.5),
    "append_many": lambda client: client.append_many([Append(0, b"x")], deadline_seconds=0.5),
    "submit": lambda client: client.submit(Nothing()),
    "high_water_mark": lambda client: client.high_water_mark(0, deadline_seconds=0.5),
    "get_data": lambda client: client.get_data(0, 0, deadline_seconds=0.5),
    "flush": lambda client: client.flush_transactions(deadline_seconds=0.5),
    "set_partitions": lambda client: client.set_partitions([0]),
    "feed": lambda client: next(client.feed(0)),
    "client_id": lambda client: client.client_id,
    "enter": lambda client: client.__enter__(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_a_child_is_refused_at_once(fakes: FakeThread, name: str) -> None:
    def job() -> str:
        try:
            CALLS[name](client)
        except UsageError as error:
            return str(error)
        return "no error"

    with connect(fakes) as client:
        assert client.append(partition=0, data=b"x") == Committed(0, 0)
        assert "opened in another process: open a new one after the fork" in in_child(job)
        assert client.append(partition=0, data=b"y") == Committed(0, 1)


def test_a_feed_that_is_taken_along_is_refused_and_can_be_dropped(
    fakes: FakeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def job() -> str:
        dropped.close()
        try:
            list(feed)
        except UsageError as error:
            return f"{error} {unraisable}"
        return "no error"

    with connect(fakes) as client:
        for _ in range(2):
            client.append(partition=0, data=b"x")
        feed, dropped = client.feed(0, until=2), client.feed(0)
        next(feed), next(dropped)
        assert in_child(job).endswith("after the fork []")
        client.append(partition=0, data=b"x")
        assert [one.transaction_id for one in feed] == [1, 2]


@pytest.mark.parametrize("kind", ["feed", "batches", "range"])
def test_a_reader_in_which_a_thread_of_the_parent_waits_is_refused(fakes: FakeThread, kind: str) -> None:
    """The thread that holds its lock is not in the child."""

    def job() -> str:
        try:
            next(read)
        except UsageError as error:
            return str(error)
        return "no error"

    with connect(fakes) as client:
        client.append(partition=0, data=b"x")
        reader = client.read_range(0, 0, 0) if kind == "range" else client.feed(0)
        read: Iterator[object] = iter(reader)
        if isinstance(reader, BlockingFeed) and kind == "batches":
            read = reader.batches()
        with reader._lock:  # as if another thread of the parent had held it at the fork
            assert "opened in another process: open a new one after the fork" in in_child(job)
        next(read)


def test_a_child_closes_without_touching_the_parents_client(fakes: FakeThread) -> None:
    def job() -> str:
        with client._thread._lock:  # as if another thread of the parent had held it at the fork
            client.close()
            client.close()
        return "closed"

    with connect(fakes) as client:
        assert client.append(partition=0, data=b"x") == Committed(0, 0)
        assert in_child(job) == "closed"
        # The same connection and the same loop go on: the parent's client has nothing to repair.
        assert client.append(partition=0, data=b"y", max_attempts=1) == Committed(0, 1)


def test_the_with_block_of_the_parent_may_end_in_the_child(fakes: FakeThread) -> None:
    forked: list[int] = []
    reader, writer = os.pipe()
    try:
        with connect(fakes) as client:
            assert client.append(partition=0, data=b"x") == Committed(0, 0)
            forked.append(os.fork())
        if not forked[0]:
            os.write(writer, b"out")
    finally:
        if forked == [0]:
            os._exit(0)
    try:
        assert select.select([reader], [], [], 20)[0], "the child hangs"
    finally:
        os.kill(forked[0], signal.SIGKILL)
        os.waitpid(forked[0], 0)
        os.close(reader)
        os.close(writer)


def test_a_child_opens_a_client_of_its_own(fakes: FakeThread) -> None:
    """Also through a facade that was made, but not entered, before the fork."""

    def job() -> str:
        with unopened as client:
            return str(client.append(partition=0, data=b"z", deadline_seconds=10))

    unopened = connect(fakes)
    with connect(fakes) as client:
        assert client.append(partition=0, data=b"x") == Committed(0, 0)
        assert in_child(job) == str(Committed(0, 1))
        assert client.append(partition=0, data=b"y") == Committed(0, 2)
