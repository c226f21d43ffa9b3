"""What a named producer makes of the answers to its appends, and of those that join one (ADR 38)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest.mock import Mock

import pytest

from client_tests.helpers import until
from client_tests.producers import numbers, orders, under_way
from waltz_client import (
    Append,
    Committed,
    LockConflictError,
    LockId,
    Outcome,
    OutcomeUnknownError,
    PendingAppend,
    ProducerFencedError,
    RepeatTooOldError,
    SequenceUnsupportedError,
    TransactionTooLargeError,
    WindowFullError,
)
from waltz_client._internal.append.transaction_monitor import Resolution
from waltz_client.testing import InProcessLog
from waltz_protocol.frames.append_batch import Answer, Verdict

pytestmark = pytest.mark.looptime


async def test_what_joins_an_append_takes_part_in_the_window() -> None:
    log = InProcessLog()
    results: list[PendingAppend] = []
    async with orders(log, maxConcurrentTransactions=3) as client:
        await client.writable(0)
        log.partition(0).hold()
        for _ in range(3):
            client.append_nowait(partition=0, data=b"a", sequence=0, on_done=results.append)
        with pytest.raises(WindowFullError):
            client.append_nowait(partition=0, data=b"a", sequence=0, on_done=results.append)
        waiting = under_way(client.append_many([Append(0, b"a", sequence=0)] * 5))
        await asyncio.sleep(1)
        log.partition(0).release()
        assert await waiting == [Committed(0, 0)] * 5
        assert [one.transaction_id for one in results] == [0, 0, 0]
        window = client._core.partitions.streams[0].window  # type: ignore[union-attr]
        assert (window.joined, window.room) == (0, 3)
    assert numbers(log) == [0]


async def test_a_batch_that_asks_about_a_view_when_a_newer_instance_begins_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits in no line when all that wait there are ended, and comes to the line behind that."""
    log = InProcessLog()
    async with orders(log) as older:
        await older.append(partition=0, data=b"0", sequence=0)
        log.partition(0).pause_feed()
        log.partition(0).commit(b"of somebody else")
        rpc = older._core.partitions._rpc  # type: ignore[union-attr]
        ask, asked, answered = rpc.high_water_mark, asyncio.Event(), asyncio.Event()

        async def slow(partition_id: int, seconds: float) -> int:
            mark = await ask(partition_id, seconds)
            asked.set()
            await answered.wait()
            return mark

        monkeypatch.setattr(rpc, "high_water_mark", slow)
        batch = under_way(older.append_many([Append(0, b"1", as_of=1, sequence=n) for n in (1, 2)]))
        single = under_way(older.append(partition=0, data=b"3", as_of=1, sequence=3))
        await asked.wait()
        async with orders(log):
            await until(lambda: older._core.producer.fenced)  # type: ignore[union-attr]
            answered.set()
            async with asyncio.timeout(5):
                results = await batch
                with pytest.raises(ProducerFencedError, match="was not sent"):
                    await single
        assert [type(one) for one in results] == [ProducerFencedError] * 2
        assert {one.outcome for one in results if isinstance(one, ProducerFencedError)} == {Outcome.FAILED}
    assert numbers(log)[:1] == [0]
    assert len(log.partition(0).transactions) == 2


async def test_what_is_too_old_while_the_feed_is_behind_is_sent_again() -> None:
    """A first sending: the server's window is shorter than what the client has not received yet."""
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        window = client._core.partitions.streams[0].window  # type: ignore[union-attr]
        log.partition(0).hold()
        pending = under_way(client.append(partition=0, data=b"1", sequence=1))
        await until(lambda: log.partition(0).waiting)
        entry = window.monitor.oldest
        assert entry is not None
        answer = Answer(Verdict.REPEAT_TOO_OLD, entry.generation, 0, 1, 5)
        assert window.answered(answer, 0), "it is to be sent again"
        log.partition(0).release()
        assert await pending == Committed(0, 1)


async def test_a_number_that_lies_too_far_back_says_what_is_left_to_do() -> None:
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"5", sequence=5)
        partition = client._core.partitions.streams[0]  # type: ignore[union-attr]
        log.partition(0).hold()
        pending = under_way(client.append(partition=0, data=b"1", sequence=1))
        await until(lambda: log.partition(0).waiting)
        entry = partition.window.monitor.oldest
        assert entry is not None
        partition.append_answered(Answer(Verdict.REPEAT_TOO_OLD, entry.generation, 1, 1, 40))
        with pytest.raises(RepeatTooOldError, match=r"number 1 before transaction 40") as caught:
            await pending
        assert "read" in str(caught.value)
        assert "last_sequence" in str(caught.value)


async def test_safety_e8_too_large_for_this_server_says_nothing_about_another_instance() -> None:
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        partition = client._core.partitions.streams[0]  # type: ignore[union-attr]
        log.partition(0).hold()
        pending = under_way(client.append(partition=0, data=b"1", sequence=1, deadline_seconds=3600))
        await until(lambda: log.partition(0).waiting)
        entry = partition.window.monitor.oldest
        assert isinstance(entry, PendingAppend)
        began = asyncio.get_running_loop().time()
        partition.append_answered(
            Answer(Verdict.TOO_LARGE, entry.generation, 0, 1, 5, text="more than 5 locks")
        )
        with pytest.raises(TransactionTooLargeError, match="more than 5 locks; another instance") as caught:
            await pending
        assert caught.value.outcome is entry.outcome is Outcome.UNKNOWN
        assert asyncio.get_running_loop().time() == began, "it is not sent again until the deadline"


@pytest.mark.parametrize(
    ("verdict", "number", "text", "wait", "reason"),
    [
        (Verdict.OVERLOADED, 300, None, 0.3, "too many appends"),
        (Verdict.NO_QUORUM, -1, "node a is silent", 1.0, "node a is silent"),
    ],
)
async def test_what_is_refused_for_the_moment_is_sent_again_after_the_wait_and_without_a_mount(
    verdict: Verdict, number: int, text: str | None, wait: float, reason: str
) -> None:
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        partition = client._core.partitions.streams[0]  # type: ignore[union-attr]
        mount, there = partition._mount, log.partition(0)
        there.hold()
        pending, joined = (
            under_way(client.append(partition=0, data=b"1", sequence=1, deadline_seconds=seconds))
            for seconds in (60, 5)
        )
        await until(lambda: there.waiting)
        entry = partition.window.monitor.oldest
        assert isinstance(entry, PendingAppend)
        answer = Answer(verdict, entry.generation, 0, 1, number, text=text)
        partition.append_answered(answer)
        await asyncio.sleep(wait - 0.05)
        assert there.waiting == 1
        await asyncio.sleep(0.1)
        assert there.waiting == 2
        with pytest.raises(OutcomeUnknownError, match=f"within 5 s.*{reason}"):
            await joined
        assert partition._mount is mount
        there.release()
        assert await pending == Committed(0, 1)
        assert partition.pending == 0
    assert numbers(log) == [0, 1]


async def test_what_is_refused_again_and_again_ends_with_the_reason_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        partition = client._core.partitions.streams[0]  # type: ignore[union-attr]
        mount, sent = partition._mount, 0

        def refuse(_: object, frame: bytes) -> bool:
            nonlocal sent
            sent += 1
            entry = partition.window.monitor.oldest
            assert entry is not None
            said = Answer(Verdict.OVERLOADED, entry.generation, 0, entry.seq_num, 50)
            asyncio.get_running_loop().call_soon(partition.append_answered, said)
            return True

        monkeypatch.setattr(type(partition.mounted_on), "send_append", refuse)
        with pytest.raises(OutcomeUnknownError, match=r"refused it: .*too many appends"):
            await client.append(partition=0, data=b"1", sequence=1, deadline_seconds=2)
        assert 35 <= sent <= 41
        await asyncio.sleep(1)  # nobody waits for it any longer
        assert partition.pending == 0
        assert sent <= 42
        assert partition._mount is mount


async def test_what_joins_an_append_has_its_view() -> None:
    """A lock that was touched behind that view is no view ahead of the log."""
    log, lock = InProcessLog(), LockId("account", 1)
    async with orders(log) as client:
        await client.writable(0)
        log.partition(0).hold()
        first = under_way(client.append(partition=0, data=b"a", sequence=0, write_locks=[lock]))
        await until(client.has_pending_transactions)
        log.partition(0).commit(b"of somebody else", write_locks=[lock])
        log.partition(0).commit(b"unrelated")
        await until(lambda: client.status().partitions[0].received == 1)
        again = under_way(client.append(partition=0, data=b"a", sequence=0, write_locks=[lock]))
        window = client._entered.partitions.streams[0].window
        await until(lambda: window.joined)
        log.partition(0).release()
        for call in (first, again):
            with pytest.raises(LockConflictError) as caught:
                await call
            assert caught.value.conflicting_high_water_mark == 0


async def test_appends_whose_partition_moves_to_an_older_server_end_with_their_callers() -> None:
    """It takes none of them: the partition stays mounted there, and what comes next gets the right error."""
    log = InProcessLog()
    partition = log.partition(0)
    async with orders(log, maxConcurrentTransactions=2, longWaitThreshold=250) as client:
        async with asyncio.timeout(20):
            await client.append(partition=0, data=b"0", sequence=0)
            partition.hold()
            with pytest.raises(OutcomeUnknownError):
                await client.append(partition=0, data=b"1", sequence=1, deadline_seconds=0.05)
            staying = under_way(client.append(partition=0, data=b"2", sequence=2, deadline_seconds=1.5))
            await until(lambda: partition.waiting == 2)
            stream = client._open.partitions.streams[0]
            log._newest_version = 4
            partition._reset()
            log.disconnect()
            await until(lambda: stream.mounted_on is not None and stream.mounted_on.version == 4)
            assert client.status().partitions[0].appends == 1
            mounts = Mock(wraps=partition.mount_received)
            partition.mount_received = mounts  # type: ignore[method-assign]
            with pytest.raises(OutcomeUnknownError):
                await staying
            await until(lambda: not client.has_pending_transactions())
            with pytest.raises(SequenceUnsupportedError):
                await client.append(partition=0, data=b"3", sequence=3)
            assert not mounts.called
            assert await client.close(drain_seconds=5)


async def test_what_waits_for_its_next_sending_is_not_sent_to_an_older_server() -> None:
    """It knows no repeated append: it would end the connection, with all its partitions. Before, the wait of
    an answer outlived the mount at which it was given."""
    log = InProcessLog()
    partition = log.partition(0)
    async with orders(log) as client:
        async with asyncio.timeout(20):
            await client.append(partition=0, data=b"0", sequence=0)
            partition.hold()
            pending = under_way(client.append(partition=0, data=b"1", sequence=1))
            await until(lambda: partition.waiting)
            stream = client._open.partitions.streams[0]
            entry = stream.window.monitor.oldest
            assert entry is not None
            stream.append_answered(Answer(Verdict.OVERLOADED, entry.generation, 0, 1, 3000))
            log._newest_version = 4
            partition._reset()
            log.disconnect()
            await until(lambda: stream.mounted_on is not None and stream.mounted_on.version == 4)
            older = stream.mounted_on
            await asyncio.sleep(4)
            assert stream.mounted_on is older
            log._newest_version = 5
            log.disconnect()
            await until(lambda: partition.waiting)
            partition.release()
            assert await pending == Committed(0, 1)
    assert numbers(log) == [0, 1]


async def test_an_answer_to_more_appends_than_there_are_costs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count that was damaged on its way, say: before, the loop stood still for as long as it takes to count
    to it."""
    log, looked_for = InProcessLog(), list[int]()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        partition = client._core.partitions.streams[0]  # type: ignore[union-attr]
        monitor = partition.window.monitor
        log.partition(0).hold()
        pending = under_way(client.append(partition=0, data=b"1", sequence=1))
        await until(lambda: log.partition(0).waiting)
        entry, decide = monitor.oldest, monitor.committed_by_answer
        assert entry is not None

        def counted(sequence: int, generation: int, transaction_id: int) -> Sequence[Resolution]:
            looked_for.append(sequence)
            assert len(looked_for) < 10
            return decide(sequence, generation, transaction_id)

        monkeypatch.setattr(monitor, "committed_by_answer", counted)
        partition.append_answered(Answer(Verdict.COMMITTED, entry.generation, 0, 0, 0, 2**31 - 1))
        assert client.status().partitions[0].known_mark == 0
        log.partition(0).release()
        assert await pending == Committed(0, 1)
    assert looked_for[0] == 1
