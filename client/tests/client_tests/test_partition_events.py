"""Whatever happens to one partition of the stream side, in whatever order: no frame handler raises, and what
is sent keeps to the state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from client_tests.test_stream_partition import Host, Session, feed
from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import AppendRequest
from waltz_client._internal.append.window import AppendWindow
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.mount_state import MountState
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.stream.session import StreamSession
from waltz_client.errors import WaltzClientError
from waltz_protocol.messages.client import MountState as MountAnswer
from waltz_protocol.types import ReqId

STEPS = 400
REQUEST = AppendRequest(0, b"data", 0, (), (), (), None)


class LoopHost(Host):
    """What is spawned runs; the answer to a question for the mark comes when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.action: Callable[[], object] = lambda: None

    async def start_mark(self, partition_id: int) -> int:
        await self.gate.wait()
        if self.mark < -1:
            raise WaltzClientError("no answer")
        return self.mark

    async def server_high_water_mark(self, partition_id: int) -> int:
        return self.mark

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro)
        self.tasks.append(task)
        return task


class Drive:
    """A client and a server that do anything at any time, within what each may do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.host = LoopHost()
        ids = ReqIdSource(7, 0, random.Random(seed))
        ids.raise_generation(1)
        window = AppendWindow(ids, 5, 1 << 20, self.host.need_ticks)
        self.partition = StreamPartition(ids, self.host, window, random.Random(seed))
        start_timer = self.partition._start_timer

        def note_timer(seconds: float, action: Callable[[], object]) -> None:
            start_timer(seconds, action)
            self.host.timer, self.host.action = self.partition._mount_timer, action

        self.partition._start_timer = note_timer  # type: ignore[method-assign]
        self.session: Session | None = None
        self.closed = False
        self.cursors: list[FeedCursor] = []
        self.generation = 1
        self.handles: list[PendingAppend] = []

    def any_seq_num(self) -> int:
        session = self.partition.session
        sent: list[tuple[ReqId, int]] = []
        if session is not None:
            sent = cast(Any, session).mounts + cast(Any, session).feeds
        known = [req_id.seq_num for req_id, _ in sent]
        known += [handle.seq_num for handle in self.handles if handle.pending]
        return self.random.choice(known) if known else 5

    def activate(self) -> None:
        if not self.closed:
            self.partition.activate()

    def attach(self) -> None:
        self.session = Session()
        self.partition.session_ready(cast(StreamSession, self.session))

    def lose(self) -> None:
        if self.partition.session is not None:
            self.partition.session_lost(self.partition.session)

    def deactivate(self) -> None:
        if self.partition.active or self.closed:
            self.lose()
            self.partition.deactivate()

    def close(self) -> None:
        if self.random.random() < 0.05:
            self.closed = True
            self.partition.close()

    def raise_generation(self) -> None:
        self.generation += 1
        self.partition.req_ids.raise_generation(self.generation)
        self.partition.generation_raised()

    def frame(self, deliver: Callable[[], object]) -> None:
        if self.partition.session is not None:
            deliver()

    def ready(self) -> None:
        self.frame(lambda: self.partition.mount_response(self.any_seq_num(), MountAnswer.READY))

    def not_ready(self) -> None:
        self.frame(lambda: self.partition.mount_response(self.any_seq_num(), MountAnswer.NOT_READY))

    def ahead(self) -> None:
        self.frame(lambda: self.partition.mount_response(self.any_seq_num(), MountAnswer.CLIENT_AHEAD))

    def suspended(self) -> None:
        self.frame(lambda: self.partition.feed_suspended(self.any_seq_num()))

    def feed_data(self) -> None:
        client_id = self.random.choice([7, 99])
        txid = self.partition.received + self.random.choice([0, 1, 1, 1, 2])
        self.frame(lambda: self.partition.feed_data(feed(client_id, self.any_seq_num(), txid)))

    def end_turn(self) -> None:
        self.frame(self.partition.end_turn)

    def flush_response(self) -> None:
        mark = self.partition.received + self.random.choice([0, 1, 3])
        self.frame(lambda: self.partition.flush_response(self.any_seq_num(), mark))

    def lock_failure(self) -> None:
        req_id = ReqId(7, self.generation, 0, self.any_seq_num())
        self.frame(lambda: self.partition.lock_failure(req_id, self.partition.received))

    def append(self) -> None:
        if self.partition.can_send:
            handle = PendingAppend(0, lambda _: None)
            self.partition.send_append(handle, REQUEST)
            self.handles.append(handle)

    def tick(self) -> None:
        self.partition.on_tick(2)

    def timer(self) -> None:
        timer = self.host.timer
        if timer is not None and not timer.cancelled():
            timer.cancel()
            self.host.action()

    def let_start(self) -> None:
        self.host.mark = self.random.choice([-2, -1, 3, 50])
        self.host.gate.set()

    def hold_start(self) -> None:
        self.host.gate.clear()

    def add_reader(self) -> None:
        if self.partition.active and len(self.cursors) < 4:
            after = self.random.choice([None, -1, 2, self.partition.received, self.partition.received + 5])
            cursor = FeedCursor(0, after, 3, lambda: None)
            self.cursors.append(cursor)
            self.partition.readers.add(cursor)

    def remove_reader(self) -> None:
        if self.cursors:
            self.partition.readers.remove(self.cursors.pop())

    def drain(self) -> None:
        for cursor in self.cursors:
            cursor.take_at_most(2)
            self.partition.readers.drained(cursor)

    def check(self) -> None:
        partition = self.partition
        assert partition.mounted == (partition.state is MountState.MOUNTED)
        assert partition.active == (partition.state not in (MountState.INACTIVE, MountState.CLOSED))
        assert not (partition.mounted and partition.session is None)
        mount = partition._mount
        assert mount is None or mount.session is partition.session
        assert not (partition.mounted and partition._asked_mounts)
        if partition.state is MountState.STARTING:
            assert not partition._asked_mounts
        if partition.session is not None and partition.state is MountState.MOUNTING:
            assert partition._asked_mounts or partition._mount_timer is not None, (
                "nothing will ask for the mount"
            )
        if partition.session is not None and partition.state is MountState.STARTING:
            assert partition._starting is not None
            assert not partition._starting.done()


@pytest.mark.parametrize("seed", range(30))
async def test_no_order_of_events_is_too_much_for_a_partition(seed: int) -> None:
    drive = Drive(seed)
    actions = [
        drive.activate, drive.attach, drive.lose, drive.deactivate, drive.close, drive.raise_generation, drive.ready,
        drive.ready, drive.ready, drive.not_ready, drive.ahead, drive.suspended, drive.feed_data, drive.feed_data,
        drive.end_turn, drive.flush_response, drive.lock_failure, drive.append, drive.append, drive.tick, drive.timer,
        drive.let_start, drive.hold_start, drive.add_reader, drive.remove_reader, drive.drain,
    ]  # fmt: skip
    for _ in range(STEPS):
        drive.random.choice(actions)()
        drive.check()
        for _ in range(drive.random.choice([0, 0, 1, 5])):
            await asyncio.sleep(0)
        drive.check()
    drive.partition.close()
    for task in drive.host.tasks:
        if task.done() and not task.cancelled():
            assert task.exception() is None
        task.cancel()
    await asyncio.sleep(0)


async def test_two_that_ask_for_the_first_position_mount_once() -> None:
    """Deactivating cancels whoever asks the application for its position; one that catches that, or turns it
    into an error of its own, still asks when the partition is active again."""
    drive = Drive(0)
    partition, answers = drive.partition, [asyncio.Event(), asyncio.Event()]
    asked = iter(answers)

    async def start_mark(partition_id: int) -> int:
        answer = next(asked)
        try:
            await answer.wait()
        except asyncio.CancelledError:
            await answer.wait()
        return 4

    drive.host.start_mark = start_mark  # type: ignore[method-assign]
    for _ in range(2):
        drive.deactivate()
        drive.activate()
        drive.attach()
        await asyncio.sleep(0.01)
    answers[0].set()
    await asyncio.sleep(0.01)
    drive.ready()
    assert partition.mounted
    answers[1].set()
    await asyncio.sleep(0.01)
    assert drive.session is not None
    assert len(drive.session.mounts) == 1
    drive.check()
