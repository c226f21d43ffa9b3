"""Which partitions move by load: it converges, it never goes round in circles, and it keeps its limits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_cluster.moving import ServerMove
from waltz_operator.plan.load_balance import choose

MINIMUM, IMPROVEMENT = 0.3, 0.15


def chosen(
    owners: dict[int, int],
    loads: dict[int, float],
    *,
    servers: tuple[int, ...] = (1, 2),
    fixed: tuple[int, ...] = (),
    limit: int = 2,
) -> tuple[ServerMove, ...]:
    return choose(owners, loads, servers, fixed, minimum=MINIMUM, improvement=IMPROVEMENT, limit=limit)


TWO_HOT = {0: 0.4, 1: 0.3, 2: 0.01, 3: 0.02}
AND_TWO = {0: 1, 1: 1, 2: 2, 3: 2}


def test_two_hot_partitions_of_one_server_part() -> None:
    assert chosen(AND_TWO, TWO_HOT) == (ServerMove(1, 1, 2), ServerMove(2, 2, 1)) or chosen(
        AND_TWO, TWO_HOT
    ) == (ServerMove(1, 1, 2), ServerMove(3, 2, 1))


def test_a_server_with_fewer_partitions_gets_one_without_giving_any() -> None:
    assert chosen({0: 1, 1: 1, 2: 2}, {0: 0.4, 1: 0.4}) == (ServerMove(0, 1, 2),)


def test_a_partition_that_is_hot_alone_stays() -> None:
    """To move it would move the heat."""
    assert chosen(AND_TWO, {0: 0.9, 1: 0.01, 2: 0.01}) == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"loads": {0: 0.2, 1: 0.09}},
        {"loads": {0: 0.5, 1: 0.12, 2: 0.5}},
        {"limit": 1},
        {"limit": 0},
        {"fixed": (0, 1)},
        {"fixed": (2, 3)},
        {"servers": (1,), "owners": {0: 1, 1: 1}},
        {"servers": (), "owners": {}},
    ],
    ids=[
        "nobody is busy",
        "too little better",
        "one only",
        "none",
        "stays",
        "partners stay",
        "alone",
        "nobody",
    ],
)
def test_nothing_moves(changed: dict[str, object]) -> None:
    given_ = {"owners": AND_TWO, "loads": TWO_HOT} | changed
    assert chosen(**given_) == ()  # type: ignore[arg-type]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, float], tuple[int, ...]]:
    """Fair numbers of partitions, any loads."""
    count, servers = draw(st.integers(1, 24)), tuple(range(1, draw(st.integers(1, 5)) + 1))
    order = draw(st.permutations(range(count)))
    owners = {partition: servers[at % len(servers)] for at, partition in enumerate(order)}
    loads = draw(st.dictionaries(st.sampled_from(range(count)), st.floats(0, 1, width=16)))
    return owners, loads, servers


@given(clusters(), st.integers(2, 6))
def test_under_constant_load_it_ends_and_no_assignment_comes_back(
    found: tuple[dict[int, int], dict[int, float], tuple[int, ...]], limit: int
) -> None:
    owners, loads, servers = found
    seen = [dict(owners)]
    counts = sorted(Counter(owners.values()).values())
    while moves := chosen(owners, loads, servers=servers, limit=limit):
        assert len(moves) <= limit
        assert len({move.partition for move in moves}) == len(moves), "each partition once"
        before = _squares(owners, loads)
        busiest = max(_totals(owners, loads).values())
        assert busiest >= MINIMUM
        for move in moves:
            assert owners[move.partition] == move.source
            owners = {**owners, move.partition: move.target}
        assert _squares(owners, loads) < before
        assert max(_totals(owners, loads).values()) <= busiest
        assert sorted(Counter(owners.values()).values()) == counts, "fair shares stay fair"
        assert owners not in seen
        seen.append(owners)
        assert len(seen) <= 200
    for other in (1, 2, 3):  # and it stays at rest
        assert chosen(owners, loads, servers=servers, limit=limit + other) == ()


@given(clusters(), st.sets(st.integers(0, 23)))
def test_what_is_fixed_stays(
    found: tuple[dict[int, int], dict[int, float], tuple[int, ...]], fixed: set[int]
) -> None:
    owners, loads, servers = found
    moves = chosen(owners, loads, servers=servers, fixed=tuple(fixed), limit=8)
    assert not fixed & {move.partition for move in moves}


def test_thousands_of_partitions_are_no_matter() -> None:
    owners = {partition: partition % 4 + 1 for partition in range(4096)}
    loads = {partition: 0.0005 if owners[partition] == 1 else 0.0001 for partition in owners}
    assert len(chosen(owners, loads, servers=(1, 2, 3, 4), limit=16)) == 0, "one of many is too little"
    assert len(chosen(owners, loads | {1: 0.3, 4: 0.3, 0: 0.5}, servers=(1, 2, 3, 4), limit=16)) in range(17)


def _totals(owners: dict[int, int], loads: dict[int, float]) -> dict[int, float]:
    totals = dict.fromkeys(owners.values(), 0.0)
    for partition, server in owners.items():
        totals[server] += loads.get(partition, 0.0)
    return totals


def _squares(owners: dict[int, int], loads: dict[int, float]) -> float:
    return sum(one * one for one in _totals(owners, loads).values())
