"""Delays that grow and are spread at random, so that many clients do not come back in step. Pure: randomness
is injected."""

from __future__ import annotations

from typing import Protocol


class Random(Protocol):
    """The one method used of :class:`random.Random`."""

    def random(self) -> float:
        """A float in [0, 1)."""


class Backoff:
    """Delays of one retrying activity: ``initial`` doubling up to ``maximum``, each spread over [1/2, 1] of
    its size."""

    __slots__ = ("_initial_seconds", "_maximum_seconds", "_random", "_step_seconds", "attempts")

    def __init__(self, initial_seconds: float, maximum_seconds: float, random: Random) -> None:
        self._initial_seconds = initial_seconds
        self._maximum_seconds = maximum_seconds
        self._random = random
        self._step_seconds = initial_seconds
        self.attempts = 0

    def next_seconds(self) -> float:
        """The delay before the next attempt, in seconds."""
        self.attempts += 1
        step = self._step_seconds
        self._step_seconds = min(step * 2, self._maximum_seconds)
        return step * (0.5 + 0.5 * self._random.random())

    def reset(self) -> None:
        """The activity succeeded: the next failure starts from the initial delay."""
        self._step_seconds = self._initial_seconds
        self.attempts = 0
