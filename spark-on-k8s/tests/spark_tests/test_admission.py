"""How far a trigger goes: never past the limit or the end, never nothing while something waits."""

from typing import Any

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


def test_a_limit_in_bytes_is_used_up_as_far_as_payloads_fit() -> None:
    """Below one payload of each partition, too."""
    four = dict.fromkeys(range(4), 10)
    assert taken(dict.fromkeys(four, 0), admit_bytes({}, four, 350_000, dict.fromkeys(four, 1e5))) == 3
    assert taken(dict.fromkeys(four, 0), admit_bytes({}, four, 790_000, dict.fromkeys(four, 1e5))) == 7
    many = dict.fromkeys(range(1000), 50)
    admitted = admit_bytes({}, many, 900 * 1024, dict.fromkeys(many, 1024.0))
    assert taken(dict.fromkeys(many, 0), admitted) == 900


def test_a_short_partition_is_not_starved_by_a_lasting_backlog() -> None:
    by_rows = {0: 0, 1: 0}
    for trigger in range(300):
        by_rows = admit_transactions(by_rows, {0: 1_000_000 + 1000 * trigger, 1: 400}, 1000)
    assert by_rows[1] == 300


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 90)), min_size=2, max_size=7),
    st.integers(1, 300),
    st.randoms(use_true_random=False),
)
def test_no_partition_waits_for_longer_than_a_turn_of_all(
    given_spans: list[tuple[int, int]], most: int, random: Any
) -> None:
    """Whatever else comes, and whether the limit has room for one transaction of each or not. With both
    limits the second one begins where the first did."""
    places = {p: start for p, (start, _) in enumerate(given_spans)}
    sizes = {p: float(size) for p, (_, size) in enumerate(given_spans)}
    last_served = dict.fromkeys(places, 0)
    for trigger in range(1, 60):
        ends = {p: start + random.choice((1, 3, 10**6)) for p, start in places.items()}
        rows = admit_transactions(places, ends, max(most // 40, 1))
        further = admit_bytes(places, rows, most, sizes)
        assert taken(places, further) >= 1
        for p, place in further.items():
            if place > places[p]:
                last_served[p] = trigger
        assert all(trigger - last < len(places) for last in last_served.values())
        places = further


def test_a_log_that_went_back_is_followed_back() -> None:
    assert admit_transactions({0: 50, 1: 0}, {0: 20, 1: 30}, 10) == {0: 20, 1: 10}


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 20))
def test_samples_lie_in_what_waits(start: int, end: int, count: int) -> None:
    found = sample_ids(start, end, count)
    assert len(found) == min(count, max(end - start, 0))
    assert all(start <= i < end for i in found)
