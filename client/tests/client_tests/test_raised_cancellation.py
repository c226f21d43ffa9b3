"""A function of the application that raises CancelledError, as taking the result of a cancelled future does:
an error like any other, which touches nobody else. And what holds when an exit is raised."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import cast

import pytest

from client_tests.helpers import until
from client_tests.test_stream_partition import OWN, REQUEST, append, feed, mounted, taken
from waltz_client import (
    ClientClosedError,
    ClientObserver,
    Outcome,
    OutcomeUnknownError,
    PendingAppend,
)
from waltz_client._internal.observers import Observers
from waltz_client._internal.stream.feed_cursor import CursorState, FeedCursor
from waltz_client._internal.stream.session import StreamSession
from waltz_client.testing import InProcessLog
from waltz_protocol.types import Endpoint


class Worse(BaseException):
    """Nothing that a program is expected to raise."""


def take_a_cancelled_result(_: object) -> None:
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.cancel()
    gone.result()


async def test_safety_e1_an_on_done_that_raises_a_cancellation_takes_no_transaction_from_the_readers() -> (
    None
):
    partition, _ = mounted(4)
    cursor = FeedCursor(0, 4, 100, lambda: None)
    partition.readers.add(cursor)
    handle = PendingAppend(0, take_a_cancelled_result)
    partition.send_append(handle, REQUEST)
    behind = append(partition)
    partition.feed_data(feed(OWN, handle.seq_num, 5))
    partition.feed_data(feed(OWN, behind.seq_num, 6))
    partition.end_turn()
    assert [handle.outcome, behind.outcome] == [Outcome.COMMITTED] * 2
    assert taken(cursor) == [5, 6]


async def test_safety_e1_whatever_an_on_done_raises_the_readers_get_what_counts_as_received() -> None:
    def fail(_: object) -> None:
        raise SystemExit

    partition, session = mounted(4)
    cursor = FeedCursor(0, 4, 100, lambda: None)
    partition.readers.add(cursor)
    handle = PendingAppend(0, fail)
    partition.send_append(handle, REQUEST)
    with pytest.raises(SystemExit):
        partition.feed_data(feed(OWN, handle.seq_num, 5))
    partition.session_lost(cast(StreamSession, session))
    assert partition.received == 5
    assert taken(cursor) == [5]


async def test_safety_e1_a_reader_that_misses_a_transaction_asks_for_it() -> None:
    partition, session = mounted(4)
    cursor = FeedCursor(0, 4, 100, lambda: None)
    partition.readers.add(cursor)
    partition.feed_data(feed(OWN, 1, 5))
    partition.readers.turn.clear()  # a defect
    partition.feed_data(feed(OWN, 2, 6))
    partition.end_turn()
    assert taken(cursor) == []
    assert session.feeds[-1][1] == 4
    for number in (5, 6):
        partition.feed_data(feed(OWN, number, number))
    partition.end_turn()
    assert taken(cursor) == [5, 6]
    assert cursor.state is CursorState.LIVE


def test_an_observer_that_raises_a_cancellation_is_passed_over() -> None:
    class Rude(ClientObserver):
        def connected(self, server: Endpoint) -> None:
            raise asyncio.CancelledError

    class Other(ClientObserver):
        def __init__(self) -> None:
            self.seen: list[Endpoint] = []

        def connected(self, server: Endpoint) -> None:
            self.seen.append(server)

    other = Other()
    Observers([Rude(), other]).connected(Endpoint("host", 1))
    assert other.seen == [Endpoint("host", 1)]


@pytest.mark.parametrize("error", [asyncio.CancelledError, Worse, SystemExit])
async def test_a_close_ends_everything_whatever_an_on_done_raises(error: type[BaseException]) -> None:
    def fail(_: object) -> None:
        raise error

    log, ended = InProcessLog(num_partitions=2), list[PendingAppend]()
    async with log.client() as client, asyncio.timeout(10):
        for partition in (0, 1):
            await client.writable(partition)
            log.partition(partition).hold()
        client.append_nowait(partition=0, data=b"1", on_done=fail)
        client.append_nowait(partition=1, data=b"2", on_done=ended.append)
        waiting = asyncio.gather(
            client.append(partition=1, data=b"x", deadline_seconds=3600),
            anext(client.feed(0, after=None)),
            anext(client.feed(1, after=None, headers_only=True)),
            return_exceptions=True,
        )
        await until(lambda: client.status().partitions[1].appends == 2)
        with pytest.raises(SystemExit) if error is SystemExit else nullcontext():
            await client.close()
        results = await waiting
        assert [type(one) for one in results] == [OutcomeUnknownError, ClientClosedError, ClientClosedError]
        assert [one.outcome for one in ended] == [Outcome.UNKNOWN]
        assert [task for task in asyncio.all_tasks() if "waltz client" in task.get_name()] == []
