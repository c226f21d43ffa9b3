"""Request ids, back-off, serializers, builders: the small pure parts."""

import random

import pytest

from client_tests.helpers import until
from waltz_client import BYTES, JSON, STRING, FeedTransaction, LockId, PartitionLocalLock, TransactionBuilder
from waltz_client._internal.append import lock_names
from waltz_client._internal.append.request import lock_hashes
from waltz_client._internal.req_ids import NEAR, ReqIdSource, follows
from waltz_protocol.backoff import Backoff
from waltz_protocol.connection_number import first_connection_number, object_of
from waltz_protocol.types import ReqId


def test_safety_e2_the_counter_survives_generations_and_wraps() -> None:
    source = ReqIdSource(7, 3, random.Random(1))
    start = source._seq_num
    assert source.next_req_id() == ReqId(7, -1, 3, start + 1)
    assert source.raise_generation(4)
    assert source.next_req_id() == ReqId(7, 4, 3, start + 2)
    assert not source.raise_generation(4)
    assert not source.raise_generation(2)
    assert source.generation == 4
    source._seq_num = 2**31 - 2
    assert [source.next_seq_num() for _ in range(3)] == [2**31 - 1, -(2**31), -(2**31) + 1]
    assert source.pack(4, -5) == ReqId(7, 4, 3, -5).pack()


def test_safety_e5_every_source_starts_at_a_number_of_its_own() -> None:
    """Over the whole range; 65,536 sources of 2**32 numbers rarely share one (about 0.5 pairs are
    expected)."""
    rng = random.Random(2)
    starts = [ReqIdSource(7, 3, rng).next_seq_num() for _ in range(65_536)]
    assert len(set(starts)) > 65_530
    assert min(starts) < -(2**31) + 2**20
    assert max(starts) > 2**31 - 2**20
    numbers = {first_connection_number(rng.random()) for _ in range(65_536)}
    assert len(numbers) > 65_530
    assert all(0 < object_of(number) == object_of(number + 2**27 - 1) < 2**36 for number in numbers)


@pytest.mark.parametrize("seed", range(20))
def test_safety_e5_numbers_move_far_away_and_none_is_given_out_twice(seed: int) -> None:
    source = ReqIdSource(7, 3, random.Random(seed))
    given: set[int] = set()
    for distance in (20, -20, NEAR - 1, 1 - NEAR) * 3:  # ahead or behind, next to it or just near enough
        mine = [source.next_seq_num() for _ in range(50)]
        assert given.isdisjoint(mine)
        given.update(mine)
        assert not source.gave_out(mine[0] - 1)
        stranger = mine[-1] + distance
        assert source.is_near(stranger)
        source.move(away_from=stranger)
        assert not source.is_near(stranger)
        assert not source.is_near(mine[-1])
    assert all(source.gave_out(number) for number in given)
    assert not any(source.gave_out(number + 100) for number in given)


def test_numbers_follow_each_other_around_the_end() -> None:
    assert follows(5, 4)
    assert not follows(4, 4)
    assert not follows(4, 5)
    assert follows(-(2**31), 2**31 - 1)
    assert not follows(2**31 - 1, -(2**31))


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


def test_a_lock_that_is_in_use_has_its_name_whatever_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the busiest locks were nameless in conflicts once so many had been used: their hashes were
    known, so nothing took their names down again."""
    monkeypatch.setattr(lock_names, "NAMES", 10)
    busy = LockId("busy", 1)
    for number in range(25):
        lock_names.hash_of(LockId("account", number))
        assert lock_names.lock_of(lock_names.hash_of(busy)) == busy
    assert len(lock_names._names) <= 10
