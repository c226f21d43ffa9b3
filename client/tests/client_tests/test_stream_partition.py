"""One partition of the stream side alone, between a session that notes what is sent and frames given one by one.

Against a whole server the order in which frames arrive is the loop's; here it is the test's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz_client._internal.append_window import PendingAppend
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.stream_partition import NOT_STARTED, StreamPartition
from waltz_client._internal.stream_session import StreamSession
from waltz_client.errors import Outcome, PartitionInactiveError
from waltz_client.transaction import FeedFields
from waltz_protocol.messages.client import MountState
from waltz_protocol.types import ReqId

OWN, STRANGER = 7, 99


class Host:
    """What a partition asks of its client; nothing here takes time."""

    async def start_mark(self, partition_id: int) -> int:
        raise NotImplementedError

    async def server_high_water_mark(self, partition_id: int) -> int:
        raise NotImplementedError

    def need_ticks(self) -> None:
        """The tests make the ticks."""

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        raise NotImplementedError


class Session:
    """A connection to a server; what is sent stays here."""

    endpoint = "server:1"
    version = 4
    writable = True
    paused = False

    def __init__(self) -> None:
        self.mounts: list[tuple[ReqId, int]] = []
        self.flushes: list[ReqId] = []
        self.appends: list[bytes] = []
        self.channel = SimpleNamespace(closed=False, send=self.appends.append)

    def send_mount(self, req_id: ReqId, mark: int) -> bool:
        self.mounts.append((req_id, mark))
        return True

    def send_flush(self, req_id: ReqId) -> bool:
        self.flushes.append(req_id)
        return True

    def send_feed_request(self, req_id: ReqId, mark: int) -> bool:
        return True


def mounted(received: int = 4) -> tuple[StreamPartition, Session]:
    """A partition that has seen everything up to ``received`` and is mounted there, in generation 1."""
    ids = ReqIdSource(OWN, 0)
    ids.raise_generation(1)
    partition, session = StreamPartition(ids, Host(), 10, random.Random(1)), Session()
    partition.activate()
    partition.received = partition.ready_mark = received
    partition.session_ready(cast(StreamSession, session))
    answer(partition, session)
    return partition, session


def answer(partition: StreamPartition, session: Session) -> None:
    """The server says READY to the newest mount."""
    partition.mount_response(session.mounts[-1][0].seq_num, MountState.READY)
    assert partition.mounted


def append(partition: StreamPartition) -> PendingAppend:
    handle = PendingAppend(0, lambda _: None)
    partition.send_append(handle, b"data", 0, partition.received, (), (), ())
    return handle


def outcome(handle: PendingAppend) -> Outcome | None:
    return handle.outcome


def feed(client_id: int, seq_num: int, transaction_id: int) -> FeedFields:
    return (client_id, 1, 0, seq_num, transaction_id, 0)


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_safety_e1_a_flush_takes_effect_at_its_mark_and_not_one_before(before: int) -> None:
    """The answer to a flush has overtaken the feed by some transactions, the last of which is the append itself."""
    partition, _ = mounted(4)
    handle = append(partition)
    mark = 5 + before
    partition.flush_response(handle.seq_num, mark)
    for transaction_id in range(5, mark):
        partition.feed_data(feed(STRANGER, handle.seq_num, transaction_id))
        assert outcome(handle) is None
    partition.feed_data(feed(OWN, handle.seq_num, mark))
    assert outcome(handle) is Outcome.COMMITTED
    assert handle.transaction_id == mark


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_safety_e1_a_flush_fails_an_append_as_soon_as_the_feed_is_at_its_mark(before: int) -> None:
    partition, _ = mounted(4)
    handle = append(partition)
    partition.flush_response(handle.seq_num, 4 + before)
    for transaction_id in range(5, 5 + before):
        assert outcome(handle) is None
        partition.feed_data(feed(STRANGER, handle.seq_num, transaction_id))
    assert outcome(handle) is Outcome.FAILED


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_safety_e1_a_lock_failure_takes_effect_at_its_mark_and_not_one_before(before: int) -> None:
    """A server of 0.13.2 may answer so to an append that it has taken: the feed decides, up to the mark itself."""
    partition, _ = mounted(4)
    handle = append(partition)
    mark = 5 + before
    partition.lock_failure(ReqId(OWN, 1, 0, handle.seq_num), mark)
    for transaction_id in range(5, mark):
        partition.feed_data(feed(STRANGER, handle.seq_num, transaction_id))
        assert outcome(handle) is None
    partition.feed_data(feed(OWN, handle.seq_num, mark))
    assert outcome(handle) is Outcome.COMMITTED


async def test_safety_e1_a_flush_decides_everything_sent_before_it() -> None:
    """It names the newest append, so that its answer settles the older ones as well and needs no second round."""
    partition, session = mounted()
    handles = [append(partition) for _ in range(3)]
    partition.window.flush(cast(StreamSession, session))
    assert [asked.seq_num for asked in session.flushes] == [handles[-1].seq_num]
    partition.flush_response(session.flushes[-1].seq_num, partition.received)
    assert [outcome(handle) for handle in handles] == [Outcome.FAILED] * 3


async def test_safety_e2_a_raised_generation_mounts_again_with_the_new_number() -> None:
    """What was sent under the old one may have been dropped in silence: nothing more is sent before a new mount."""
    partition, session = mounted()
    handle = append(partition)
    partition.req_ids.raise_generation(2)
    partition.generation_raised()
    assert len(session.mounts) == 2
    assert session.mounts[-1][0].generation == 2
    assert session.mounts[-1][1] == partition.received
    assert not partition.can_send
    answer(partition, session)
    assert session.flushes[-1].seq_num == handle.seq_num
    assert outcome(handle) is None


async def test_safety_e2_a_partition_that_was_let_go_starts_from_the_end_of_the_log_again() -> None:
    """Nothing was received meanwhile: with the old place, a later mount would feed everything missed in between."""
    partition, _ = mounted()
    waiter = partition.window.add_waiter()
    used = partition.req_ids.next_seq_num()
    partition.deactivate()
    assert not partition.started
    assert partition.received == NOT_STARTED
    assert isinstance(waiter.exception(), PartitionInactiveError)
    assert partition.req_ids.next_seq_num() == used + 1
