"""Ranges and how they are cut: every transaction once, in order, whatever is asked for."""

from hypothesis import given
from hypothesis import strategies as st

from waltz_spark.planning import Range, cut, ranges_between

spans = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=5)


def ids(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(one.partition, i) for one in ranges for i in range(one.first, one.last + 1)]


@given(spans)
def test_ranges_hold_what_lies_between_start_and_end(found: dict[int, tuple[int, int]]) -> None:
    starts, ends = {p: low for p, (low, _) in found.items()}, {p: high for p, (_, high) in found.items()}
    ranges = ranges_between(starts, ends)
    assert ids(ranges) == [(p, i) for p in sorted(ends) for i in range(starts[p], ends[p])]
    assert all(one.count > 0 for one in ranges)


@given(spans, st.none() | st.integers(1, 60), st.none() | st.integers(1, 700))
def test_cutting_keeps_every_transaction_once_and_in_order(
    found: dict[int, tuple[int, int]], min_parts: int | None, max_transactions: int | None
) -> None:
    ranges = ranges_between(
        {p: low for p, (low, _) in found.items()}, {p: high for p, (_, high) in found.items()}
    )
    pieces = cut(ranges, min_parts, max_transactions)
    assert ids(pieces) == ids(ranges)
    total = sum(one.count for one in ranges)
    if max_transactions is not None:
        assert all(piece.count <= max_transactions for piece in pieces)
    if min_parts is not None:
        assert len(pieces) >= min(min_parts, total)
    if min_parts is None and max_transactions is None:
        assert pieces == ranges


def test_the_longest_part_is_divided_first() -> None:
    assert cut([Range(0, 0, 99), Range(1, 0, 9)], 3, None) == [
        Range(0, 0, 49),
        Range(0, 50, 99),
        Range(1, 0, 9),
    ]
    assert cut([Range(0, 0, 1)], 8, None) == [Range(0, 0, 0), Range(0, 1, 1)]
    assert cut([], 8, 3) == []
