"""Feeds that wait for a range to be read from storage, by the transaction that each of them needs next.

Owner: the feeds of one partition (`feed`, `block_feeds`), on the event loop.

Invariants
* Whoever waits here has a range that is queued or being read (`RangeReader`), or the timer of the next try.
* A failing storage is asked again with growing pauses (13.19: the reference loops).
* A range that several feeds wait for outlives the client that asked for it: at a new try each of them joins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from waltz_protocol.backoff import Backoff
from waltz_server.partition.client import Client
from waltz_server.partition.reads import RangeReader
from waltz_server.store.callbacks import Callbacks

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0


class _Feed(Protocol):
    @property
    def client(self) -> Client: ...


F = TypeVar("F", bound=_Feed)


class AwaitedReads(Generic[F]):
    """Who waits for which transaction. `place(feed)` is called for a feed whose read has to be asked for
    anew."""

    def __init__(self, reader: RangeReader, loop: Callbacks, place: Callable[[F], None]) -> None:
        self._reader = reader
        self._loop = loop
        self._place = place
        self._waiting: dict[int, list[F]] = {}
        self._closed = False
        self._backoff = Backoff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS)
        self._retry_timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, transaction_id: int, feed: F) -> None:
        """The feed waits for this transaction. Its read is asked for by the caller."""
        self._waiting.setdefault(transaction_id, []).append(feed)

    def discard(self, transaction_id: int, feed: F) -> bool:
        """The feed no longer waits; whether it did, for this transaction."""
        waiting = self._waiting.get(transaction_id, [])
        if feed not in waiting:
            return False
        waiting.remove(feed)
        if not waiting:
            del self._waiting[transaction_id]
        return True

    def waits_in(self, first: int, end: int) -> bool:
        """Whether a feed waits for a transaction of `first` <= id < `end`."""
        return any(first <= transaction_id < end for transaction_id in self._waiting)

    def delivered(self, first: int, end: int) -> Iterator[tuple[int, F]]:
        """A range has been read: each feed that waited in it, with its transaction; they wait no longer."""
        self._backoff.reset()
        if not self._waiting:
            return
        for transaction_id in [waited for waited in self._waiting if first <= waited < end]:
            for feed in self._waiting.pop(transaction_id, ()):
                yield transaction_id, feed

    def failed(self, first: int, end: int) -> None:
        """A range could not be read: the feeds waiting in it try again after a pause that doubles."""
        if self._retry_timer is None and not self._closed and self.waits_in(first, end):
            self._retry_timer = self._loop.call_later(self._backoff.next_seconds(), self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        waiting, self._waiting = self._waiting, {}
        for transaction_id, feeds in waiting.items():
            if all(self._reader.join(transaction_id, feed.client, feed) for feed in feeds):
                self._waiting[transaction_id] = feeds
            else:
                for feed in feeds:
                    self._place(feed)

    def close(self) -> None:
        """Nobody waits any longer, and nothing is tried again."""
        self._closed = True
        self._waiting = {}
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
