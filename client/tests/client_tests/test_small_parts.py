"""Request ids, back-off, serializers, builders: the small pure parts."""

import pytest

from client_tests.helpers import until
from waltz_client import BYTES, JSON, STRING, FeedTransaction, LockId, PartitionLocalLock, TransactionBuilder
from waltz_client._internal.backoff import Backoff
from waltz_client._internal.core import lock_hashes
from waltz_client._internal.req_ids import ReqIdSource
from waltz_protocol.types import ReqId


def test_safety_e2_the_counter_survives_generations_and_wraps() -> None:
    source = ReqIdSource(7, 3)
    assert source.next_req_id() == ReqId(7, -1, 3, 1)
    assert source.raise_generation(4)
    assert source.next_req_id() == ReqId(7, 4, 3, 2)
    assert not source.raise_generation(4)
    assert not source.raise_generation(2)
    assert source.generation == 4
    source._seq_num = 2**31 - 2
    assert [source.next_seq_num() for _ in range(3)] == [2**31 - 1, -(2**31), -(2**31) + 1]
    assert source.pack(4, -5) == ReqId(7, 4, 3, -5).pack()


def test_backoff_doubles_is_spread_and_bounded() -> None:
    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def random(self) -> float:
            return self.value

    low, high = Backoff(0.02, 0.5, Fixed(0.0)), Backoff(0.02, 0.5, Fixed(1.0))
    delays = [(low.next_seconds(), high.next_seconds()) for _ in range(7)]
    assert [round(b, 3) for _, b in delays] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert all(round(a * 2, 6) == round(b, 6) for a, b in delays)
    assert high.attempts == 7
    high.reset()
    assert high.next_seconds() == 0.02


def test_serializers() -> None:
    assert BYTES.deserialize(BYTES.serialize(b"\xff")) == b"\xff"
    assert STRING.deserialize(STRING.serialize("zähler")) == "zähler"
    assert JSON.deserialize(JSON.serialize({"a": [1, None, "ü"]})) == {"a": [1, None, "ü"]}


def test_lock_hashes_are_those_of_the_wire() -> None:
    locks = [PartitionLocalLock("acct", 7), LockId("user", -1), LockId("acct", 7)]
    assert lock_hashes(locks) == (0x002D9814, 0x0036EBCB, 0x002D9814)


def test_builder() -> None:
    builder = TransactionBuilder(41)
    builder.set_header(-3).set_transaction_data({"a": 1}, JSON).set_append_locks(iter([LockId("a", 1)]))
    assert (builder.client_high_water_mark, builder.header, builder.payload()) == (41, -3, b'{"a":1}')
    assert (builder.write_locks, builder.read_locks, builder.append_locks) == ((), (), (LockId("a", 1),))


def test_feed_transaction() -> None:
    transaction = FeedTransaction((1, 2, 3, 4, 100, -7), b"x")
    assert transaction.req_id == ReqId(1, 2, 3, 4)
    assert (transaction.partition_id, transaction.transaction_id, transaction.header) == (3, 100, -7)
    assert transaction == FeedTransaction((1, 2, 3, 4, 100, -7), b"x")
    assert transaction != FeedTransaction((1, 2, 3, 4, 100, -7))
    assert len({transaction, FeedTransaction((1, 2, 3, 4, 100, -7), b"x")}) == 1
    assert "transaction 100 of partition 3" in repr(transaction)


async def test_until_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="still not true"):
        await until(lambda: False, seconds=0.01)
