"""Offsets and places: what is compared as text, what a user wrote, what lies behind the end of a log."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    PlaceError,
    beyond,
    chosen_partitions,
    clipped,
    lag,
    resolve,
)

places = st.dictionaries(st.integers(0, 2_000), st.integers(0, 2**63 - 1), max_size=20)
keys = st.uuids().map(str)


@given(keys, places, st.randoms())
def test_equal_offsets_have_equal_text_and_come_back(
    key: str, next_ids: dict[int, int], random: object
) -> None:
    shuffled = list(next_ids.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for began in (None, next_ids):
        first = Offsets(key, {0: 1}, began)
        assert Offsets.from_json(json.loads(json.dumps(first.to_json()))) == first
    one, other = Offsets(key, next_ids), Offsets(key, dict(shuffled))
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert Offsets.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert [int(name) for name in one.to_json() if name != "cluster"] == sorted(next_ids)


@pytest.mark.parametrize(
    "text",
    [
        '{"0": 1}',
        '{"cluster": 7}',
        '{"0": "1", "cluster": "k"}',
        '{"0": true, "cluster": "k"}',
        '{"0": -1, "cluster": "k"}',
        '{"x": 1, "cluster": "k"}',
        '{"-1": 1, "cluster": "k"}',
        '{"0": 1, "cluster": "k", "began": 0}',
        '{"0": 1, "cluster": "k", "began": {"0": -1}}',
    ],
)
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(PlaceError):
        Offsets.from_json(json.loads(text))


@given(places.filter(bool), st.data())
def test_a_place_is_resolved_for_every_partition(ends: dict[int, int], data: st.DataObject) -> None:
    assert set(resolve(EARLIEST, ends).values()) == {0}
    assert resolve(LATEST, ends) == ends
    given_ids = data.draw(st.fixed_dictionaries({p: st.integers(-2, 2**63 - 1) for p in ends}))
    for p, place in resolve(given_ids, ends).items():
        assert place == {-2: 0, -1: ends[p]}.get(given_ids[p], given_ids[p])


def test_a_mapping_names_exactly_what_is_read() -> None:
    with pytest.raises(PlaceError, match="partition 1 is not named, and it is read"):
        resolve({0: 5}, {0: 9, 1: 9})
    with pytest.raises(PlaceError, match="partition 7 is named, but it is not read"):
        resolve({0: 5, 7: 1}, {0: 9})


def test_partitions_are_those_of_the_cluster() -> None:
    assert chosen_partitions(None, 3) == (0, 1, 2)
    assert chosen_partitions([2, 0, 2], 3) == (0, 2)
    with pytest.raises(PlaceError, match="there is no partition 3, the cluster has 0 to 2"):
        chosen_partitions([0, 3], 3)


@given(places, places)
def test_clipped_places_are_not_beyond(given_places: dict[int, int], ends: dict[int, int]) -> None:
    assert beyond(clipped(given_places, ends), ends) == []
    outside = {p for p, _, _ in beyond(given_places, ends)}
    assert all((given_places[p] > ends[p]) == (p in outside) for p in given_places if p in ends)


def test_lag_counts_what_was_never_read_from_the_beginning() -> None:
    read, latest = Offsets("k", {0: 5, 1: 9}), Offsets("k", {0: 8, 1: 9, 2: 4})
    assert lag(read, latest) == {0: 3, 1: 0, 2: 4}
