"""Pauses between attempts, which grow and are spread at random, so that many do not come back in step.

Pure: randomness is injected, and the caller sleeps.
"""

from typing import Protocol

AT_MOST = (0.5, 1.0)
"""A spread: the doubled pause is the longest."""
AROUND = (0.75, 1.25)
"""A spread: the doubled pause is the mean."""


class Random(Protocol):
    """The one method of `random.Random` that is used."""

    def random(self) -> float:
        """A float in [0, 1)."""


class Backoff:
    """Pauses of one repeated activity: `initial_seconds`, doubling up to `limit_seconds`.

    Each is multiplied by a random factor between the two numbers of `spread`; without `random` by none.
    """

    __slots__ = ("_initial_seconds", "_limit_seconds", "_next_seconds", "_random", "_spread", "attempts")

    def __init__(
        self,
        initial_seconds: float,
        limit_seconds: float,
        random: Random | None = None,
        *,
        spread: tuple[float, float] = AT_MOST,
    ) -> None:
        self._initial_seconds = initial_seconds
        self._limit_seconds = limit_seconds
        self._random = random
        self._spread = spread
        self._next_seconds = initial_seconds
        self.attempts = 0

    def next_seconds(self) -> float:
        """The pause before the next attempt."""
        self.attempts += 1
        pause = self._next_seconds
        self._next_seconds = min(pause * 2, self._limit_seconds)
        if self._random is None:
            return pause
        least, most = self._spread
        return pause * (least + (most - least) * self._random.random())

    def reset(self) -> None:
        """The activity succeeded: the next failure starts from the initial pause."""
        self._next_seconds = self._initial_seconds
        self.attempts = 0
