"""Feed cache and data cache against plain dictionaries, within their budgets."""

import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from waltz_protocol.frames.feed import FRAME_BYTES
from waltz_server.partition.feed_cache import BLOCK_FRAMES, FeedCache
from waltz_server.partition.transaction_cache import (
    ENTRY_OVERHEAD_BYTES,
    RUN_RECORD_OVERHEAD_BYTES,
    SLICE_RECORDS,
    TransactionCache,
)
from waltz_server.store.record_run import RecordRun

BLOCK_BYTES = BLOCK_FRAMES * FRAME_BYTES + 300


def frames(first: int, count: int) -> bytes:
    return b"".join(struct.pack(">q", n).rjust(FRAME_BYTES, b"f") for n in range(first, first + count))


def test_slices_end_at_block_boundaries_and_hold_what_was_put() -> None:
    cache = FeedCache(10 * BLOCK_BYTES).partition(0)
    cache.put(1000, frames(1000, 2000))
    assert cache.slice(999, 10) is None
    assert cache.slice(1000, 10_000) == frames(1000, 24)
    assert cache.slice(1024, 10_000) == frames(1024, 1024)
    assert cache.slice(1030, 5) == frames(1030, 5)
    assert cache.slice(3000, 1) is None


def test_slices_never_change_when_the_block_grows() -> None:
    cache = FeedCache(10 * BLOCK_BYTES).partition(0)
    cache.put(0, frames(0, 3))
    taken = cache.slice(0, 10)
    cache.put(3, frames(3, 1021))
    cache.put(1024, frames(1024, 1))
    assert taken == frames(0, 3)
    assert cache.slice(0, 5000) == frames(0, 1024)


def test_a_reader_fills_the_front_of_the_newest_block() -> None:
    cache = FeedCache(10 * BLOCK_BYTES).partition(0)
    cache.put(500, frames(500, 10))
    cache.put(0, frames(0, 505))
    assert cache.slice(0, 5000) == frames(0, 510)


def test_budget_holds_over_partitions_and_the_least_recently_used_goes() -> None:
    shared = FeedCache(3 * BLOCK_BYTES)
    one, two = shared.partition(1), shared.partition(2)
    one.put(0, frames(0, 1024))
    two.put(0, frames(0, 1024))
    one.put(1024, frames(1024, 1024))
    assert one.slice(0, 1) is not None
    two.put(1024, frames(1024, 1024))
    assert two.slice(0, 1) is None
    assert one.slice(0, 1) is not None
    assert shared.used_bytes <= shared.capacity_bytes
    one.drop()
    assert one.slice(0, 1) is None
    assert shared.used_bytes == BLOCK_BYTES


runs = st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 1500)), max_size=12)


@given(runs, st.integers(2, 5), st.integers(0, 5500))
def test_whatever_is_found_is_right(puts: list[tuple[int, int]], blocks: int, probe: int) -> None:
    shared = FeedCache(blocks * BLOCK_BYTES)
    cache = shared.partition(7)
    for first, count in puts:
        cache.put(first, frames(first, count))
        assert shared.used_bytes <= shared.capacity_bytes
    newest = max((first + count for first, count in puts), default=0)
    cache.put(newest, frames(newest, 1))
    assert cache.slice(newest, 1) == frames(newest, 1)
    found = cache.slice(probe, 100)
    if found is not None:
        count = len(found) // FRAME_BYTES
        assert 1 <= count <= 100
        assert found == frames(probe, count)


class _CountedBlocks(OrderedDict[Any, Any]):
    """Counts the keys that are looked at."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.seen += 1
            yield key


def test_dropping_partitions_looks_at_no_block_of_the_others() -> None:
    shared = FeedCache(50 * BLOCK_BYTES)
    parts = [shared.partition(n) for n in range(100)]
    for number in range(3):
        for part in parts:
            part.put(number * BLOCK_FRAMES, frames(0, 600))
    blocks = shared._blocks = _CountedBlocks(shared._blocks)
    assert len(blocks) > 50
    for part in parts:
        part.drop()
        assert part.slice(2 * BLOCK_FRAMES, 1) is None
    assert blocks.seen == 0
    assert not blocks
    assert shared.used_bytes == 0


_puts = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 3, 9]), st.integers(0, 1000), st.integers(0, 900)),
    max_size=20,
)


@given(_puts)
def test_a_dropped_partition_leaves_nothing(puts: list[tuple[int, int, int, int]]) -> None:
    """Whatever was evicted, replaced or dropped before; a count of zero drops."""
    shared = FeedCache(3 * BLOCK_BYTES)
    parts = [shared.partition(n) for n in range(4)]
    for number, block, first, count in puts:
        if count:
            parts[number].put(block * BLOCK_FRAMES + first, frames(0, count))
        else:
            parts[number].drop()
            assert number not in {partition_id for partition_id, _ in shared._blocks}
        assert {number for number, _ in shared._blocks} == shared._numbers.keys()
    for part in parts:
        part.drop()
    assert (shared.used_bytes, shared._blocks, shared._numbers) == (0, {}, {})


def test_data_cache_is_bounded_in_bytes_and_forgets_the_oldest() -> None:
    shared = TransactionCache(10 * (1000 + ENTRY_OVERHEAD_BYTES))
    one, two = shared.partition(), shared.partition()
    for n in range(20):
        (one if n % 2 else two).put(n, b"x" * 1000)
        assert shared.used_bytes <= shared.capacity_bytes
    assert one.get(9) is None
    assert two.get(10) == b"x" * 1000
    assert one.get(19) == b"x" * 1000
    one.drop()
    assert one.get(19) is None
    assert two.get(18) is not None
    assert shared.used_bytes == 5 * (1000 + ENTRY_OVERHEAD_BYTES)
    for n in range(100, 120):
        one.put(n, b"y" * 1000)
    assert two.get(18) is None


class _CountedDeque(deque[Any]):
    """Counts the entries that are looked at."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.seen += 1
            yield item

    def popleft(self) -> Any:
        self.seen += 1
        return super().popleft()


def test_dropping_partitions_costs_as_much_as_they_hold() -> None:
    """Before, each drop looked at the entries of all partitions: a server that lost 250 stood still for
    seconds."""
    shared = TransactionCache(10_000_000)
    parts = [shared.partition() for _ in range(100)]
    for n in range(5000):
        parts[n % 100].put(n, b"x" * 100)
    order = shared._order = _CountedDeque(shared._order)
    for number, part in enumerate(parts):
        part.drop()
        assert not part.entries
        assert shared.used_bytes == (99 - number) * 50 * (100 + ENTRY_OVERHEAD_BYTES)
        assert len(order) <= 2 * (99 - number) * 50  # the dead ones are never more than the others
    assert order.seen <= 2 * 5000
    assert shared._order is order


def test_what_a_dropped_partition_left_behind_is_skipped_when_it_comes_back() -> None:
    """A later life of a partition may hold the same ids: the old queue entries must not evict them."""
    shared = TransactionCache(10 * (100 + ENTRY_OVERHEAD_BYTES))
    one, two = shared.partition(), shared.partition()
    for n in range(3):
        one.put(n, b"old" + b"x" * 97)
    for n in range(4):
        two.put(n, b"x" * 100)
    one.drop()
    for n in range(6):
        one.put(n, b"new" + b"x" * 97)
    assert shared.used_bytes == shared.capacity_bytes
    one.put(6, b"new" + b"x" * 97)
    assert two.get(0) is None
    assert [n for n in range(7) if one.get(n)] == list(range(7))
    assert shared.used_bytes == shared.capacity_bytes


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 400), st.integers(1, 40)),
        max_size=200,
    )
)
def test_the_budget_is_exact_over_drops_and_evictions(steps: list[tuple[int, int, int, int]]) -> None:
    shared = TransactionCache(16_000)
    parts = [shared.partition() for _ in range(4)]
    for number, first, size, count in steps:
        part = parts[number]
        if size < 20:
            part.drop()
        elif size < 100:
            part.put_run(RecordRun.of_records(first, [b"x" * size] * count))
        else:
            part.put(first, b"x" * size)
        held = [len(record) + ENTRY_OVERHEAD_BYTES for part in parts for record in part.entries.values()]
        for part in parts:
            life, end = part._life, 0
            assert life.firsts == sorted(life.firsts)
            for begin, run in zip(life.firsts, life.runs, strict=True):
                assert begin >= end
                end = begin + len(run)
                held.append(len(run.data) + len(run) * RUN_RECORD_OVERHEAD_BYTES + ENTRY_OVERHEAD_BYTES)
        assert shared.used_bytes == sum(held) <= shared.capacity_bytes
        assert len(shared._order) - shared._dead == len(held)


def record(transaction_id: int) -> bytes:
    return transaction_id.to_bytes(8, "big") * 10


def test_a_read_is_one_entry_and_found_from_anywhere_in_it() -> None:
    shared = TransactionCache(10_000_000)
    cache = shared.partition()
    cache.put_run(RecordRun.of_records(100, [record(n) for n in range(100, 300)]))
    assert not cache.entries
    assert len(shared._order) == 1
    assert cache.get(99) is None
    assert cache.get(300) is None
    assert [cache.get(n) for n in (100, 170, 299)] == [record(n) for n in (100, 170, 299)]
    assert cache.slice(99, 10) == []
    assert cache.slice(290, 5) == [record(n) for n in range(290, 295)]
    assert cache.slice(290, 1000) == [record(n) for n in range(290, 300)]
    assert cache.slice(100, 1000) == [record(n) for n in range(100, 100 + SLICE_RECORDS)]
    whole = cache.joined(100, 1000, 1 << 20)
    assert whole == (200, cache._life.runs[0].data)
    assert whole[1] is cache._life.runs[0].data  # not copied
    assert cache.joined(298, 9, 1 << 20) == (2, record(298) + record(299))
    assert cache.joined(298, 9, 159) == (1, record(298))
    assert cache.joined(300, 9, 1) is None
    cache.put_run(RecordRun.of_records(300, [record(300)]))
    assert cache.slice(300, 2) == [record(300)]
    assert cache.entries.keys() == {300}


def test_runs_of_reads_that_overlap_are_kept_once() -> None:
    cache = TransactionCache(10_000_000).partition()
    for first, end in ((100, 150), (50, 200), (120, 180), (60, 90)):
        cache.put_run(RecordRun.of_records(first, [record(n) for n in range(first, end)]))
    life = cache._life
    assert list(zip(life.firsts, map(len, life.runs), strict=True)) == [(50, 50), (100, 50), (150, 30)]
    assert [cache.get(n) for n in range(50, 180)] == [record(n) for n in range(50, 180)]
    assert cache.get(180) is None


def test_the_oldest_run_goes_and_a_run_larger_than_a_quarter_is_kept_in_parts() -> None:
    shared = TransactionCache(100_000)
    cache = shared.partition()
    for first in range(0, 2000, 100):
        cache.put_run(RecordRun.of_records(first, [record(n) for n in range(first, first + 100)]))
        assert shared.used_bytes <= shared.capacity_bytes
    assert cache.get(0) is None
    assert cache.slice(1900, 1) == [record(1900)]
    cache.put_run(RecordRun.of_records(5000, [record(n) for n in range(5000, 5300)]))
    assert cache.get(5299) == record(5299)
    assert shared.used_bytes <= shared.capacity_bytes
    cache.drop()
    assert shared.used_bytes == 0
    assert cache.get(5299) is None
    assert cache.slice(1900, 1) == []


puts = st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.integers(1, 60)), max_size=30)


@given(puts, st.integers(0, 260), st.integers(1, 100), st.integers(0, 3000))
def test_whatever_record_is_found_is_right(
    steps: list[tuple[bool, int, int]], first: int, most: int, most_bytes: int
) -> None:
    cache = TransactionCache(10_000_000).partition()
    known: set[int] = set()
    for whole, begin, count in steps:
        ids = range(begin, begin + count)
        if whole:
            cache.put_run(RecordRun.of_records(begin, [record(n) for n in ids]))
            assert cache.get(begin) == record(begin)
        else:
            for n in ids:
                cache.put(n, record(n))
        known.update(ids)
    assert all(cache.get(n) in (None, record(n)) for n in range(270))
    assert all(cache.get(n) is None for n in range(270) if n not in known)
    found = cache.slice(first, most)
    assert found == [record(n) for n in range(first, first + len(found))]
    assert len(found) <= min(most, SLICE_RECORDS)
    assert bool(found) == (cache.get(first) is not None)
    together = cache.joined(first, most, most_bytes)
    if together is None:
        assert cache._life.run_of(first) is None
    else:
        count, joined = together
        assert joined == b"".join(record(n) for n in range(first, first + count))
        assert 1 <= count <= most
        assert count == 1 or len(joined) <= most_bytes
        longer = cache.joined(first, most, max(most_bytes, len(joined)) + 80)
        assert longer is not None
        run, after = cache._life.run_of(first), cache._life.run_of(first + count)
        assert run is not None
        ended = after is None or after[0] is not run[0]
        assert longer[0] > count or count == most or ended


def test_data_larger_than_a_quarter_is_not_kept() -> None:
    shared = TransactionCache(4000)
    cache = shared.partition()
    cache.put(1, b"x" * 1001)
    assert cache.get(1) is None
    cache.put(2, b"x" * 500)
    cache.put(2, b"y" * 500)
    assert cache.get(2) == b"x" * 500
    assert shared.used_bytes == 500 + ENTRY_OVERHEAD_BYTES
