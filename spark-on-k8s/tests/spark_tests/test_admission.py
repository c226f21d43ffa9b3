"""How far a trigger goes: never past the limit or the end, never nothing while something waits."""

from hypothesis import given
from hypothesis import strategies as st

from waltz_spark.admission import admit_bytes, admit_transactions, sample_ids

spans = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 900), st.integers(0, 900)), max_size=5)


def taken(starts: dict[int, int], admitted: dict[int, int]) -> int:
    return sum(max(end - starts[p], 0) for p, end in admitted.items())


@given(spans, st.integers(1, 1500))
def test_a_number_of_transactions_is_used_up_exactly(found: dict[int, tuple[int, int]], most: int) -> None:
    starts, ends = {p: low for p, (low, _) in found.items()}, {p: high for p, (_, high) in found.items()}
    admitted = admit_transactions(starts, ends, most)
    assert admitted.keys() == ends.keys()
    assert all(end <= ends[p] for p, end in admitted.items())
    assert all(end == ends[p] or end >= starts[p] for p, end in admitted.items())
    assert taken(starts, admitted) == min(taken(starts, ends), most)


@given(spans, st.integers(1, 1500))
def test_repeated_triggers_arrive_at_the_end(found: dict[int, tuple[int, int]], most: int) -> None:
    starts = {p: min(span) for p, span in found.items()}
    ends = {p: max(span) for p, span in found.items()}
    sizes = dict.fromkeys(ends, 7.0)
    by_rows = by_bytes = starts
    for _ in range(taken(starts, ends) // most + 1):
        by_rows = admit_transactions(by_rows, ends, most)
    assert by_rows == ends
    for _ in range(taken(starts, ends) + 1):
        if by_bytes == ends:
            break
        further = admit_bytes(by_bytes, ends, most, sizes)
        assert taken(by_bytes, further) >= 1
        assert taken(by_bytes, further) * 7 <= max(most, 7)
        by_bytes = further
    assert by_bytes == ends


def test_a_long_partition_does_not_keep_the_others_waiting() -> None:
    assert admit_transactions({0: 0, 1: 0}, {0: 900, 1: 100}, 10) == {0: 9, 1: 1}
    assert admit_bytes({0: 0, 1: 0}, {0: 100, 1: 100}, 3_000, {0: 50.0, 1: 10.0}) == {0: 50, 1: 50}


def test_a_log_that_went_back_is_followed_back() -> None:
    assert admit_transactions({0: 50, 1: 0}, {0: 20, 1: 30}, 10) == {0: 20, 1: 10}


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 20))
def test_samples_lie_in_what_waits(start: int, end: int, count: int) -> None:
    found = sample_ids(start, end, count)
    assert len(found) == min(count, max(end - start, 0))
    assert all(start <= i < end for i in found)
