"""Named producers on the in-process log: one transaction per number over crashes and instances (ADR 38)."""

from __future__ import annotations

import asyncio

import pytest

from client_tests.helpers import until
from client_tests.producers import crashing, numbers, orders, under_way
from waltz_client import (
    Append,
    Committed,
    ConfigError,
    LockConflictError,
    LockId,
    Outcome,
    OutcomeUnknownError,
    PendingAppend,
    ProducerFencedError,
    RequestDeadlineError,
    SequenceInUseError,
    SequenceUnsupportedError,
    UsageError,
    WaltzClient,
)
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog

pytestmark = pytest.mark.looptime


async def test_an_instance_continues_where_the_one_before_it_ended() -> None:
    log = InProcessLog(2)
    async with orders(log) as first:
        assert (first.producer_epoch, await first.last_sequence(0)) == (1, -1)
        for number in range(3):
            done = await first.append(partition=0, data=b"event", sequence=number)
        assert done.transaction_id == 2
        own = first.client_id
    async with log.client() as other:
        assert other.client_id not in (own, 0)
        await other.append(partition=0, data=b"of somebody else")
    async with orders(log) as second:
        assert second.client_id == own
        assert second.producer_epoch == 2
        assert await second.last_sequence(0) == 2
        assert await second.last_sequence(1) == -1
        again = await second.append(partition=0, data=b"event", sequence=2)
        assert again == Committed(0, 2)
        assert await second.append(partition=0, data=b"event", sequence=3) == Committed(0, 4)
    assert numbers(log)[:3] == [0, 1, 2]
    assert len(log.partition(0).transactions) == 5


async def test_safety_e8_a_crash_between_append_and_answer_writes_nothing_twice() -> None:
    log = InProcessLog()
    async with crashing(log) as first:
        await first.append(partition=0, data=b"0", sequence=0)
        log.partition(0).hold()
        with pytest.raises(OutcomeUnknownError):
            await first.append(partition=0, data=b"1", sequence=1, deadline_seconds=1)
    log.partition(0).release()  # it is committed after its application has gone
    async with orders(log) as second:
        assert await second.last_sequence(0) == 1
        assert (await second.append(partition=0, data=b"1", sequence=1)).transaction_id == 1
        assert (await second.append(partition=0, data=b"0", sequence=0)).transaction_id == 0
    assert numbers(log) == [0, 1]


async def test_safety_e8_another_content_under_a_number_is_refused_with_the_id_that_has_it() -> None:
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"a", header=1, sequence=5)
        for data, header in ((b"b", 1), (b"a", 2)):
            with pytest.raises(SequenceInUseError, match="transaction 0") as caught:
                await client.append(partition=0, data=data, header=header, sequence=5)
            assert (caught.value.transaction_id, caught.value.sequence) == (0, 5)
            assert (caught.value.outcome, caught.value.retriable) == (Outcome.FAILED, False)
        log.partition(0).hold()
        pending = under_way(client.append(partition=0, data=b"c", sequence=6))
        await until(lambda: log.partition(0).waiting)
        with pytest.raises(SequenceInUseError, match="on its way"):
            await client.append(partition=0, data=b"d", sequence=6)
        log.partition(0).release()
        await pending
    assert [one.data for one in log.partition(0).transactions] == [b"a", b"c"]


async def test_the_same_append_under_way_is_joined() -> None:
    log = InProcessLog()
    async with orders(log) as client:
        log.partition(0).hold()
        calls = [
            under_way(client.append(partition=0, data=b"a", sequence=0, deadline_seconds=seconds))
            for seconds in (1, 30, 30)
        ]
        with pytest.raises(OutcomeUnknownError):
            await calls[0]
        log.disconnect()  # what nobody waits for would not be sent again
        log.partition(0).release()
        assert [await call for call in calls[1:]] == [Committed(0, 0)] * 2
    assert numbers(log) == [0]


async def test_safety_e8_the_feed_says_nothing_about_whose_content_has_the_number() -> None:
    """Another instance commits another content under the number while this one's append is on its way."""
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", header=3, sequence=0)
        log.partition(0).hold()
        pending = under_way(client.append(partition=0, data=b"mine", header=3, sequence=1))
        await until(lambda: log.partition(0).waiting)
        theirs = log.partition(0).transactions[0].req_id._replace(seq_num=1)
        log.partition(0)._commit(theirs, 3, b"theirs", (), ())
        log.partition(0).release()
        with pytest.raises(SequenceInUseError, match="transaction 1"):
            await pending


async def test_safety_e8_the_older_instance_appends_nothing_once_a_newer_one_has_begun() -> None:
    log = InProcessLog()
    async with orders(log) as older:
        await older.append(partition=0, data=b"0", sequence=0)
        log.partition(0).hold()
        pending = under_way(older.append(partition=0, data=b"1", sequence=1))
        await until(lambda: log.partition(0).waiting)
        async with orders(log) as newer:
            with pytest.raises(ProducerFencedError, match="epoch 2") as caught:
                await pending
            assert caught.value.outcome is Outcome.UNKNOWN
            log.partition(0).release()
            assert await newer.last_sequence(0) == 1
            with pytest.raises(ProducerFencedError, match="was not sent") as caught:
                await older.append(partition=0, data=b"2", sequence=2)
            assert caught.value.outcome is Outcome.FAILED
            assert (caught.value.producer, caught.value.epoch, caught.value.newer_epoch) == ("orders", 1, 2)
            (result,) = await older.append_many([Append(0, b"2", sequence=2)])
            assert isinstance(result, ProducerFencedError)
            with pytest.raises(ProducerFencedError):
                older.append_nowait(partition=0, data=b"2", sequence=2, on_done=lambda _: None)
            await newer.append(partition=0, data=b"2", sequence=2)
        read = [one.data async for one in older.feed(0, until=2)]  # it may still read
        assert read == [b"0", b"1", b"2"]
    assert numbers(log) == [0, 1, 2]


async def test_an_append_that_waits_to_be_sent_ends_when_a_newer_instance_begins() -> None:
    log = InProcessLog()
    async with orders(log, maxConcurrentTransactions=1) as older:
        log.partition(0).hold()
        waiting = under_way(older.append_many([Append(0, b"e", sequence=n) for n in range(3)]))
        await until(lambda: log.partition(0).waiting)
        async with orders(log) as newer:
            results = await waiting
            assert [type(one) for one in results] == [ProducerFencedError] * 3
            log.partition(0).release()
            assert await newer.last_sequence(0) == 0


async def test_a_server_informs_the_older_instance_when_zookeeper_does_not() -> None:
    log = InProcessLog()
    async with orders(log) as older:
        await older.append(partition=0, data=b"0", sequence=0)
        log.producers._watches.clear()
        async with orders(log) as newer:
            await newer.append(partition=0, data=b"1", sequence=1)
            with pytest.raises(ProducerFencedError):
                await older.append(partition=0, data=b"2", sequence=2, deadline_seconds=60)
    assert numbers(log) == [0, 1]


async def test_what_a_broken_connection_interrupts_is_sent_again_and_committed_once() -> None:
    log = InProcessLog()
    results: list[PendingAppend] = []
    async with orders(log) as client:
        await client.writable(0)
        log.partition(0).pause_feed()
        for number in range(20):
            client.append_nowait(partition=0, data=b"e", sequence=number, on_done=results.append)
        await until(lambda: len(log.partition(0).transactions) == 20)
        log.disconnect()
        log.partition(0).resume_feed()
        await until(lambda: len(results) == 20)
        assert [one.transaction_id for one in results] == list(range(20))
        log.partition(0).remount()
        sent = await client.append_many(Append(0, b"e", sequence=number) for number in range(15, 25))
        assert [one.transaction_id for one in sent if isinstance(one, Committed)] == list(range(15, 25))
    assert numbers(log) == list(range(25))


async def test_a_number_that_a_lock_has_refused_may_be_decided_again() -> None:
    log, lock = InProcessLog(), LockId("a", 1)
    async with orders(log) as client:
        log.partition(0).commit(b"somebody", write_locks=[lock])
        with pytest.raises(LockConflictError):
            await client.append(partition=0, data=b"a", write_locks=[lock], as_of=-1, sequence=0)
        assert await client.last_sequence(0) == -1
        log.partition(0).hold()
        first = under_way(client.append(partition=0, data=b"0", sequence=7))
        lost = under_way(client.append(partition=0, data=b"b", write_locks=[lock], as_of=-1, sequence=0))
        await until(lambda: log.partition(0).waiting == 2)
        log.partition(0).release()
        await first
        with pytest.raises(LockConflictError):
            await lost
        assert await client.append(partition=0, data=b"c", write_locks=[lock], sequence=0) == Committed(0, 2)


async def test_a_call_that_can_never_work() -> None:
    log = InProcessLog()
    async with orders(log) as client, log.client() as nameless:
        for number in (-1, 2**31, True, 1.5):
            with pytest.raises(
                UsageError, match=r"a sequence number is (0 to 2147483647|a whole number), not"
            ):
                await client.append(partition=0, data=b"", sequence=number)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="every append of the producer orders"):
            await client.append(partition=0, data=b"")
        with pytest.raises(UsageError, match="needs the name of a producer"):
            await nameless.append(partition=0, data=b"", sequence=0)
        with pytest.raises(UsageError, match="only a named producer"):
            await nameless.last_sequence(0)
        with pytest.raises(UsageError, match="with sequence numbers"):
            await client.transact(0, lambda builder: None)
        assert nameless.producer_epoch is None
        assert (await client.append(partition=0, data=b"", sequence=2**31 - 1)).transaction_id == 0
        assert await client.last_sequence(0) == 2**31 - 1
    with pytest.raises(ConfigError, match="name of a producer"):
        WaltzClient.connect({"client.mockDriver": log}, producer="a/b")
    with pytest.raises(ConfigError, match="maxProtocolVersion is 4"):
        async with orders(log, maxProtocolVersion=4):
            pass


async def test_safety_e8_a_server_of_an_older_version_gets_no_sequence_number() -> None:
    log = InProcessLog()
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
    log._newest_version = 4
    async with orders(log) as client:
        assert await client.last_sequence(0) == 0
        with pytest.raises(SequenceUnsupportedError, match="speaks version 4"):
            await client.append(partition=0, data=b"1", sequence=1)
        (result,) = await client.append_many([Append(0, b"1", sequence=1)])
        assert isinstance(result, SequenceUnsupportedError)
    assert numbers(log) == [0]


async def test_the_last_number_is_waited_for_no_longer_than_the_deadline() -> None:
    log = InProcessLog()
    async with orders(log) as client:
        log.partition(0).withdraw()
        with pytest.raises(RequestDeadlineError, match="orders in partition 0 was not found within 1 s"):
            await client.last_sequence(0, deadline_seconds=1)
        log.partition(0).remount()
        assert await client.last_sequence(0, deadline_seconds=60) == -1


async def test_a_new_producer_begins_at_its_creation_and_at_the_beginning_where_nobody_answers() -> None:
    log = InProcessLog(2)
    for _ in range(4):
        log.partition(0).commit(b"before")
        log.partition(1).commit(b"before")
    log.partition(1).withdraw()
    async with orders(log, connectTimeout=500):
        pass
    record = await log.producers.find("orders")
    assert record is not None
    assert {number: one[:2] for number, one in record.checkpoints.items()} == {0: (3, 3), 1: (-1, -1)}


@pytest.mark.parametrize("number_at", [6_000, 3])
async def test_safety_e8_a_partition_that_was_silent_at_the_creation_gets_its_beginning_from_its_log(
    number_at: int,
) -> None:
    """It is right before the first number, that of an instance that crashed too."""
    log = InProcessLog()
    log.partition(0).withdraw()
    async with orders(log, connectTimeout=500):
        pass
    log.partition(0).remount()
    for _ in range(number_at):
        log.partition(0).commit(b"before")
    async with crashing(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        assert (await log.producers.find("orders")).checkpoints[0] == (-1, -1, -1)  # type: ignore[union-attr]
    for _ in range(12_000):
        log.partition(0).commit(b"of somebody else")
    async with orders(log) as client:
        assert await client.last_sequence(0) == 0
        assert (await client.append(partition=0, data=b"0", sequence=0)).transaction_id == number_at
    record = await log.producers.find("orders")
    assert record is not None
    assert record.checkpoints[0] == (number_at - 1, number_at + 12_000, 0)
    async with orders(log) as client:
        assert (await client.append(partition=0, data=b"0", sequence=0)).transaction_id == number_at


async def test_where_the_producer_has_not_appended_its_beginning_moves_with_what_is_read() -> None:
    log = InProcessLog()
    async with orders(log):
        pass
    for _ in range(6_000):
        log.partition(0).commit(b"of somebody else")
    async with orders(log) as client:
        assert await client.last_sequence(0) == -1
    record = await log.producers.find("orders")
    assert record is not None
    assert record.checkpoints[0] == (5_999, 5_999, -1)


async def test_checkpoints_are_written_now_and_then_and_shorten_what_is_read() -> None:
    log = InProcessLog()
    async with crashing(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        for _ in range(5_999):
            log.partition(0).commit(b"of somebody else")
        await client.append(partition=0, data=b"1", sequence=1)
        await asyncio.sleep(11)
        record = await log.producers.find("orders")
        assert record is not None
        assert record.checkpoints[0] == (-1, 5999, 0)  # the numbers of the last 5,000 transactions come again
        await client.append(partition=0, data=b"2", sequence=2)
    async with orders(log) as client:
        assert await client.last_sequence(0) == 2
        assert (await client.append(partition=0, data=b"1", sequence=1)).transaction_id == 6000


async def test_an_older_copy_of_the_record_ends_an_instance_with_its_own_reason() -> None:
    log = InProcessLog()
    async with orders(log):
        pass
    older = log.producers._records["orders"]
    async with orders(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        log.producers._records["orders"] = older
        for _ in range(6_000):  # there is something to write down
            log.partition(0).commit(b"of somebody else")
        await asyncio.sleep(11)
        with pytest.raises(ProducerFencedError, match="the epoch 1, below the epoch 2 of this") as caught:
            await client.append(partition=0, data=b"1", sequence=1)
        assert "newer instance" not in str(caught.value)
        assert caught.value.newer_epoch is None
    async with orders(log) as client:
        assert client.producer_epoch == 2
        assert await client.last_sequence(0) == 0


async def test_partitions_that_are_let_go_are_learned_again() -> None:
    log = InProcessLog()
    async with orders(log, autoMount=False) as client:
        await client.set_partitions([0])
        await client.append(partition=0, data=b"0", sequence=0)
        await client.set_partitions([])
        for _ in range(5):
            log.partition(0).commit(b"meanwhile")
        theirs = log.partition(0).transactions[0].req_id._replace(seq_num=1)
        log.partition(0)._commit(theirs, 0, b"of another instance", (), ())
        await client.set_partitions([0])
        assert await client.last_sequence(0) == 1
        with pytest.raises(SequenceInUseError):
            await client.append(partition=0, data=b"1", sequence=1)


def test_the_blocking_client_has_it_too() -> None:
    log = InProcessLog()
    for epoch in (1, 2):
        with BlockingWaltzClient.connect({"client.mockDriver": log}, producer="orders") as client:
            assert client.producer_epoch == epoch
            assert client.last_sequence(0) == epoch - 2
            pending = client.append_nowait(partition=0, data=b"n", sequence=epoch - 1, on_done=lambda _: None)
            client.flush_transactions()
            assert pending.committed
            client.append(partition=0, data=b"n", sequence=epoch - 1)
    assert numbers(log) == [0, 1]
