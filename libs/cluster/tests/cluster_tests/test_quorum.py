"""Whether a partition can take a write, and saying so once for all partitions with the same cause."""

from __future__ import annotations

import itertools

from waltz_cluster.quorum import alike, id_ranges, quorum_of, said_once, shortage

SHORT = "1 of 3 replicas, 2 needed: a:1 (does not answer), b:1 (its disk is full)"


def test_a_majority_is_needed() -> None:
    assert [quorum_of(count) for count in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]
    for count in range(1, 6):
        for able in itertools.product((True, False), repeat=count):
            short = shortage({f"n{i}:1": "" if one else "silent" for i, one in enumerate(able)})
            assert bool(short) == (sum(able) * 2 <= count), (able, short)


def test_the_reason_counts_and_names() -> None:
    assert shortage({"b:1": "its disk is full", "c:1": "", "a:1": "does not answer"}) == SHORT
    assert shortage({"b:1": "", "c:1": "", "a:1": "does not answer"}) == ""
    assert shortage({}) == "no replica is assigned"


def test_what_all_share_is_said_once() -> None:
    assert said_once({}, 3) == []
    assert said_once(dict.fromkeys(range(1000), SHORT), 1000) == [f"no partition can take a write: {SHORT}"]
    assert said_once({0: SHORT}, 1) == [f"no partition can take a write: {SHORT}"]
    assert said_once({0: SHORT, 1: SHORT, 2: SHORT, 5: SHORT}, 6) == [
        f"partitions 0-2,5 cannot take a write: {SHORT}"
    ]
    assert said_once({0: SHORT, 1: "fault", 2: SHORT}, 3) == [
        f"partitions 0,2 cannot take a write: {SHORT}",
        "partition 1 cannot take a write: fault",
    ]
    assert alike({3: "x", 1: "y", 2: "x"}) == {"1": "y", "2-3": "x"}


def test_ranges() -> None:
    assert [id_ranges(ids) for ids in ([], [4], [3, 2, 1], [0, 2, 3, 9])] == ["", "4", "1-3", "0,2-3,9"]
