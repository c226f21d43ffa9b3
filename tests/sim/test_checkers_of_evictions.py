"""Each rule about evictions is shown a history that breaks it, and the nearest one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sim.checkers.evictions import Eviction, check_evictions

TIMEOUT = 2.0


def invariants(evictions: Sequence[Eviction]) -> list[str]:
    """What is found."""
    return [violation.invariant for violation in check_evictions(evictions, TIMEOUT)]


def frozen(at: float, victim: str = "server-1", by: int = 7) -> Eviction:
    """It lived, and stood still."""
    return Eviction(at, by, victim, 0.0, silent=True)


def gone(at: float, victim: str, by: int = 7) -> Eviction:
    """Its process was gone."""
    return Eviction(at, by, victim, 0.0, silent=False)


@pytest.mark.parametrize(("steady", "found"), [(2.1, ["evicted"]), (1.9, [])])
def test_safety_g1_a_server_that_ran_all_the_time_was_evicted(steady: float, found: list[str]) -> None:
    assert invariants([Eviction(50.0, 7, "server-1", steady, silent=True)]) == found


@pytest.mark.parametrize(("second", "found"), [(50.4, ["eviction_pace"]), (50.6, [])])
def test_safety_g3_two_were_evicted_by_one_judge_in_one_moment(second: float, found: list[str]) -> None:
    assert invariants([gone(second, "server-2"), gone(50.0, "server-1")]) == found
    assert invariants([gone(second, "server-2", by=8), gone(50.0, "server-1")]) == []


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([50.0, 53.0], ["eviction_rest"]),
        ([50.0, 54.5], []),
        ([50.0, 54.5, 61.0], ["eviction_rest"]),
        ([50.0, 54.5, 63.0], []),
        ([50.0, 54.5, 63.0, 78.0], ["eviction_rest"]),
        ([50.0, 54.5, 63.0, 80.0], []),
    ],
)
def test_safety_g4_who_was_evicted_for_silence_was_not_left_alone(
    times: list[float], found: list[str]
) -> None:
    assert invariants([frozen(at) for at in times]) == found
    assert invariants([frozen(at, by=number) for number, at in enumerate(times)]) == []
    assert invariants([gone(at, "server-1") for at in times]) == []
