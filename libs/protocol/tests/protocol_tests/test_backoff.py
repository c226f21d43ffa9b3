"""Pauses double up to their limit, are spread as asked, and start anew after a success."""

import pytest

from waltz_protocol.backoff import AROUND, AT_MOST, Backoff


class Fixed:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def test_pauses_double_up_to_their_limit() -> None:
    backoff = Backoff(0.02, 0.5)
    assert [backoff.next_seconds() for _ in range(7)] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert backoff.attempts == 7
    backoff.reset()
    assert backoff.attempts == 0
    assert backoff.next_seconds() == 0.02


@pytest.mark.parametrize("spread", [AT_MOST, AROUND, (0.8, 1.2)])
def test_each_pause_is_spread_between_the_two_factors(spread: tuple[float, float]) -> None:
    for place in (0.0, 0.5, 1.0):
        backoff = Backoff(0.25, 1.0, Fixed(place), spread=spread)
        factor = spread[0] + (spread[1] - spread[0]) * place
        assert [backoff.next_seconds() for _ in range(4)] == pytest.approx(
            [0.25 * factor, 0.5 * factor, factor, factor]
        )
