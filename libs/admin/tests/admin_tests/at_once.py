"""How many questions are under way at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AtOnce:
    """`most`: so many at the same time, at the highest."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around one of them."""
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            yield
        finally:
            self._now -= 1
