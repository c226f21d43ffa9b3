"""Lock hashes and the lock table against a model that has no collisions."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_protocol import locks as locks_module
from waltz_protocol.locks import LockCheck, LockId, LockTable, slots_of


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (LockId("acct", 7), "002D9814"),
        (LockId("user", -1), "0036EBCB"),
        (LockId("\U0001f600\u00e9", 0x100000002), "03469FE5"),
    ],
)
def test_known_lock_hashes(lock: LockId, expected: str) -> None:
    assert lock.hash == int.from_bytes(bytes.fromhex(expected), "big", signed=True)


@given(st.text(), st.integers(-(2**63), 2**63 - 1))
def test_lock_hashes_are_signed_i32(name: str, lock_id: int) -> None:
    assert -(2**31) <= LockId(name, lock_id).hash < 2**31


def test_locks_that_collide_on_the_wire_collide() -> None:
    assert LockId("a", 1).hash == LockId("`", 0).hash


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 100_000))
def test_slots_are_in_the_table(lock_hash: int, size: int) -> None:
    assert all(0 <= slot < size for slot in slots_of(lock_hash, size))


def test_client_server_13_16_slots_are_independent() -> None:
    """With n locks in a table, the share of foreign locks whose three slots are all taken is near fill
    cubed."""
    size = 3000
    taken = {slot for h in range(0, 60_000, 100) for slot in slots_of(h, size)}
    fill = len(taken) / size
    foreign = range(1_000_003, 1_020_003)
    hits = sum(taken.issuperset(slots_of(h, size)) for h in foreign) / len(foreign)
    assert 0.3 < fill < 0.6
    assert hits == pytest.approx(fill**3, rel=0.15)


def test_estimate_counts_write_and_read_locks_only() -> None:
    table = LockTable(30_000, -1)
    table.commit(table.slots_to_raise([1], [2]), 10)
    assert table.estimate([1], []) == 10
    assert table.estimate([], [1]) == 10
    assert table.estimate([2], []) == 10, "append locks bump the table"
    assert table.estimate([], []) == -1
    assert table.estimate([3], [4]) == -1


def test_the_table_starts_at_the_high_water_mark() -> None:
    table = LockTable(100, 41)
    assert table.estimate([5], []) == 41
    assert table.estimate([], []) == -1


def test_write_and_append_locks_raise_each_of_their_slots_once() -> None:
    table = LockTable(30_000, -1)
    assert table.slots_to_raise([], []) == ()
    assert table.slots_to_raise([7], []) == slots_of(7, 30_000)
    slots = table.slots_to_raise([7, 7], [7, 8])
    assert len(slots) == 6
    assert set(slots) == {*slots_of(7, 30_000), *slots_of(8, 30_000)}
    table.commit(slots, 3)
    assert table.estimate([7], []) == table.estimate([8], []) == 3


def test_slots_never_go_down() -> None:
    table = LockTable(10, 5)
    slots = table.slots_to_raise([1], [])
    table.commit(slots, 3)
    assert table.estimate([1], []) == 5


def test_the_memory_of_slots_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "MEMO_LIMIT", 10)
    table = LockTable(1000, -1)
    for h in range(100):
        table.commit(table.slots_to_raise([h], []), h)
        assert len(table._memo) <= 10
    assert table.estimate([99], []) == 99


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        LockTable(0, -1)


_HASHES = st.lists(st.integers(-20, 20), max_size=3)


@settings(max_examples=200)
@given(st.integers(1, 50), st.lists(st.tuples(_HASHES, _HASHES, _HASHES, st.booleans()), max_size=30))
def test_a_conflict_is_never_missed(
    size: int, appends: list[tuple[list[int], list[int], list[int], bool]]
) -> None:
    """However small the table: it never says less than an exact table would."""
    table = LockTable(size, -1)
    exact: dict[int, int] = {}
    in_flight: list[tuple[tuple[int, ...], set[int]]] = []
    txid = 0
    for write, read, append, decide_first in appends:
        if decide_first and in_flight:
            slots, raised = in_flight.pop(0)
            table.commit(slots, txid)
            exact.update(dict.fromkeys(raised, txid))
            txid += 1
        if not set[int]().union(*(raised for _, raised in in_flight)).isdisjoint([*write, *read, *append]):
            continue  # it waits
        assert table.estimate(write, read) >= max([exact.get(h, -1) for h in (*write, *read)], default=-1)
        in_flight.append((table.slots_to_raise(write, append), {*write, *append}))


def test_sharing_some_slots_is_no_conflict() -> None:
    """The estimate is the lowest of the three slots, not the highest."""
    size = 50
    mine = set(slots_of(1, size))
    neighbour = next(h for h in range(2, 10_000) if 0 < len(mine & set(slots_of(h, size))) < len(mine))
    table = LockTable(size, -1)
    table.commit(table.slots_to_raise([neighbour], []), 7)
    assert table.estimate([neighbour], []) == 7
    assert table.estimate([1], []) == -1


_HASHES = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30)


@given(_HASHES, _HASHES, _HASHES, st.integers(1, 50), st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_check_in_slices_says_what_the_table_says_at_once(
    write: list[int],
    read: list[int],
    append: list[int],
    size: int,
    slice_size: int,
    rng: Random,
) -> None:
    table = LockTable(size, -1)
    for txid in range(20):
        locks = rng.sample((*write, *read, *append, 1, 2), 2)
        table.commit(table.slots_to_raise(locks, ()), txid)
    check = LockCheck(table, tuple(write), tuple(read), tuple(append))
    while not check.done:
        assert 0 < check.advance(slice_size) <= slice_size
    assert check.advance(slice_size) == 0
    assert check.conflict == table.estimate(write, read)
    highest = (lock for lock in (*write, *read) if table.estimate((lock,), ()) == check.conflict)
    if check.conflict >= 0:
        assert check.conflict_lock == next(highest)
    assert check.slots == set(table.slots_to_raise(write, append))
    assert len(check.slots) <= size
