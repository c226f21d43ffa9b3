"""Waiting between attempts: doubling, with a ceiling and a little spread. The caller sleeps."""

import random


class Backoff:
    """Gives the next pause in seconds; ``reset`` after a success."""

    def __init__(self, initial_seconds: float, max_seconds: float, rng: random.Random) -> None:
        self._initial = initial_seconds
        self._max = max_seconds
        self._rng = rng
        self._next = initial_seconds

    def next_seconds(self) -> float:
        pause = self._next
        self._next = min(self._next * 2, self._max)
        return pause * (0.75 + self._rng.random() / 2)

    def reset(self) -> None:
        self._next = self._initial
