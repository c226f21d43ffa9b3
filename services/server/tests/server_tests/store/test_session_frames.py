"""One store session on connections that answer when the test says so: overtaking answers, ends, copies for
laggards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from server_tests.store.fakes import FakeLink, FakeNode, entries, practised_size, until
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import ChannelClosedError, RequestFailedError
from waltz_server.store import frames
from waltz_server.store.api import AppendEntry, StoreSettings
from waltz_server.store.copy_turns import CopyTurns
from waltz_server.store.frames import FrameQueue
from waltz_server.store.replica_session import ReplicaSession
from waltz_server.store.session import MAX_FRAME_RECORDS, StoreSession

pytestmark = pytest.mark.looptime


class HeldLink(FakeLink):
    """Appends are executed at once; their answers are kept until the test lets them go."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node, 60.0)
        self.held: list[Callable[[Exception | None], None]] = []
        self.broken = False

    def submit_append(
        self,
        session_id: int,
        partition_id: int,
        count: int,
        wire_records: bytes,
        callback: Callable[[Exception | None], None],
    ) -> None:
        if self.broken:
            raise ChannelClosedError("it broke just now")
        self.node.append(count, wire_records)
        self.held.append(callback)

    def answer(self, number: int = 0, error: Exception | None = None) -> None:
        self.held.pop(number)(error)


class Bench:
    """A session of three replicas."""

    def __init__(self, **settings: int) -> None:
        self.links = {name: HeldLink(FakeNode(name)) for name in "abc"}
        self.committed: list[AppendEntry] = []
        self.failed: list[str] = []
        self.faults: list[Exception] = []
        self.session = StoreSession(
            partition_id=0,
            session_id=0,
            resolved=-1,
            quorum=2,
            settings=StoreSettings(**settings),
            list_request_size=practised_size(),
            on_committed=lambda batch, _size: self.committed.extend(batch),
            on_replica_failed=lambda name, reason: self.failed.append(f"{name}: {reason}"),
            on_fault=self.faults.append,
        )
        for name in "abc":
            self.enter(name)

    def enter(self, name: str) -> None:
        replica = ReplicaSession(
            name,
            self.links[name],
            max_frames=32,
            max_bytes=1 << 20,
            slow_seconds=1.0,
            copies=CopyTurns(1 << 20),
            reads=CopyTurns(1 << 20),
        )
        self.session.enter(replica, -1)

    def replica(self, name: str) -> ReplicaSession:
        return self.session.replicas[name]

    def append(self, count: int) -> list[AppendEntry]:
        batch = entries(count)
        self.session.append(batch)
        return batch


async def test_safety_d2_frames_whose_answers_overtook_commit_together_and_in_order() -> None:
    bench = Bench()
    first, second = bench.append(2), bench.append(3)
    for _ in range(2):
        bench.links["a"].answer()
    bench.links["b"].answer(1)
    assert bench.committed == []
    bench.links["b"].answer(0)
    assert bench.committed == first + second
    assert bench.session.committed == 4


async def test_after_its_end_a_session_sends_nothing_and_commits_nothing() -> None:
    bench = Bench()
    batch = bench.append(2)
    assert bench.session.end("over") == batch
    assert bench.session.end("over again") == []
    for link in bench.links.values():
        link.answer()
    bench.session.stored(bench.replica("a"), 0)
    bench.session.pump()
    assert bench.committed == []
    assert bench.session.committed == -1
    assert not bench.session.has_quorum or bench.session.ended


async def test_a_replica_fails_once() -> None:
    bench = Bench()
    bench.session.fail_replica("a", "first")
    bench.session.fail_replica("a", "second")
    bench.session.fail_replica("nobody", "third")
    assert bench.failed == ["a: first"]


async def test_an_answer_with_an_error_takes_the_replica_out_and_the_others_commit() -> None:
    bench = Bench()
    batch = bench.append(1)
    bench.links["a"].answer(error=RequestFailedError("disk full"))
    assert bench.failed == ["a: append: disk full"]
    for name in "bc":
        bench.links[name].answer()
    assert bench.committed == batch


async def test_records_for_a_copy_come_from_those_who_have_them_or_nobody() -> None:
    bench = Bench()
    bench.append(3)
    for name in "ab":
        bench.links[name].answer()
    session = bench.session
    run = await session.read_for_copy(0, 10, exclude="c")
    assert run is not None
    assert (run.first, run.last) == (0, 2)
    assert await session.read_for_copy(3, 10, exclude="c") is None  # nothing is committed there
    for name in "ab":
        bench.links[name].node.refuse = lambda _kind, _session: "io error"
    assert await session.read_for_copy(0, 10, exclude="c") is None
    session.fail_replica("a", "gone")
    assert await session.read_for_copy(0, 10, exclude="b") is None


async def test_safety_d1_a_read_ends_at_the_committed_mark() -> None:
    """However much the replica that is asked has acknowledged."""
    bench = Bench()
    bench.append(1)
    for name in "ab":
        bench.links[name].answer()
    bench.append(2)
    bench.links["a"].answer()
    session = bench.session
    session.fail_replica("b", "gone")
    assert (session.committed, session.votes.durable("a")) == (0, 2)
    for _ in range(3):
        assert (await session.read(0, 10, 1 << 20)).count == 1


async def test_a_replica_with_frames_on_their_way_does_not_go_live_again() -> None:
    bench = Bench()
    bench.append(1)
    replica = bench.replica("c")
    replica.become_catching_up()
    assert not replica.try_become_live(bench.session)
    bench.links["c"].answer()
    assert replica.try_become_live(bench.session)
    replica.become_ended("gone")
    assert not replica.try_become_live(bench.session)


async def _laggard(bench: Bench) -> asyncio.Task[None]:
    """C fell out of the kept frames and copies what the others committed."""
    for _ in range(6):
        bench.append(1)
        for name in "ab":
            bench.links[name].answer()
    c = bench.replica("c")
    while bench.links["c"].held:
        bench.links["c"].answer()
    assert not c.live
    return spawn(c.take_part(bench.session), "c takes part")


async def test_a_laggard_waits_while_nobody_can_give_it_records_and_then_goes_on() -> None:
    bench = Bench(replica_backlog_bytes=60, max_in_flight_frames=2)
    for name in "ab":
        bench.links[name].node.refuse = lambda kind, _session: "busy" if kind == "list" else None
    task = await _laggard(bench)
    await asyncio.sleep(3)
    stored = bench.links["c"].node.max_txid
    assert stored < bench.session.committed
    for name in "ab":
        bench.links[name].node.refuse = None
    while bench.links["c"].node.max_txid < bench.session.committed:
        await until(lambda: bool(bench.links["c"].held), 60)
        bench.links["c"].answer()
    await until(lambda: bench.replica("c").live, 60)
    bench.session.end("done")
    await task


async def test_a_laggard_that_fails_while_records_are_read_for_it_gets_none() -> None:
    bench = Bench(replica_backlog_bytes=60, max_in_flight_frames=2)
    for name in "ab":
        bench.links[name].node.delay_seconds = 1.0
    task = await _laggard(bench)
    await asyncio.sleep(0.5)
    bench.session.fail_replica("c", "the connection was closed")
    before = bench.links["c"].node.max_txid
    await task
    assert bench.links["c"].node.max_txid == before


async def test_a_laggard_whose_connection_breaks_under_a_copy_is_out() -> None:
    bench = Bench(replica_backlog_bytes=60, max_in_flight_frames=2)
    bench.links["c"].broken = False
    task = await _laggard(bench)
    bench.links["c"].broken = True
    await task
    assert bench.failed == ["c: catching up: it broke just now"]


async def test_no_frame_holds_more_records_than_storage_nodes_take() -> None:
    """However large `storage.maxBatchSize` is in a file of 0.13.2."""
    bench = Bench(max_batch_size=1_000_000, max_batch_bytes=1 << 30)
    bench.session.queue.add(entries(MAX_FRAME_RECORDS + 10))
    assert bench.session.queue.build().count == MAX_FRAME_RECORDS


async def test_what_could_not_be_framed_waits_for_the_next_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FrameQueue(next_txid=5, max_frame_bytes=1 << 20, max_frame_records=2)
    batch = entries(3)
    queue.add(batch)

    def no_memory(_entries: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(frames, "_wire_of", no_memory)
        with pytest.raises(MemoryError):
            queue.build()
    assert (queue.waiting, queue.end_txid, queue.end_seq) == (batch, 5, 0)
    assert [queue.build().entries, queue.build().entries] == [batch[:2], batch[2:]]
