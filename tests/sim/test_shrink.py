"""Leaving out what a failure does not need, and the command that replays it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sim.cluster.world import Choice
from tests.sim.faults.shrink import shrink
from tests.sim.report import replay_command


@pytest.mark.parametrize(
    "needed",
    [[], [0], [19], [3, 4], [0, 19], [2, 9, 17], list(range(20))],
    ids=lambda needed: str(len(needed)),
)
def test_exactly_what_is_needed_is_left(needed: list[int]) -> None:
    def fails(kept: Sequence[int]) -> bool:
        return set(needed) <= set(kept)

    assert shrink(range(20), fails) == needed


def test_of_two_reasons_one_is_left() -> None:
    assert shrink(range(10), lambda kept: 3 in kept or 7 in kept) in ([3], [7])


def test_the_command_names_everything_that_was_chosen() -> None:
    assert replay_command(7, Choice()) == "python -m tests.sim --replay 7"
    chosen = Choice("disk", frozenset({9, 3}), frozenset({"bank"}))
    assert (
        replay_command(7, chosen)
        == "python -m tests.sim --replay 7 --profile disk --only-faults 3,9 --only-workloads bank"
    )
    assert replay_command(7, Choice(faults=frozenset())).endswith("--only-faults none")
