"""How much memory the unfinished frames of all connections of a process may take together.

Every byte of a frame that has not arrived completely is counted here, over all connections that share the
budget. Two kinds of beginnings are distinguished:

* Up to `SHARE_BYTES` a frame arrives in one piece or two, and nobody is held back for it. Such beginnings may
  take half of the limit together. Beyond it those are cut that hold most for longest (bytes times seconds
  since the last one came), which is what peers do that send half a frame and stop; a slow peer whose bytes
  keep coming is behind them.
* A connection with more of a frame is not read from while the sum is past the limit, until others have
  finished (TCP holds its peer back), so peers that send large frames share the memory instead of adding it
  up.

Invariants
* The sum stays below the limit plus a half (one frame may finish) plus what one read brings, except that a
  single frame larger than the limit is received when it is the only large one.
* Nobody waits forever: when all large ones wait, the largest is cut unless one can finish; and whoever holds
  so much and sends less than `MIN_PROGRESS_BYTES` more in `STALLED_SECONDS` is cut while others wait.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from waltz_protocol.frame import MAX_READ_BYTES

SHARE_BYTES = 64 * 1024
DEFAULT_RECEIVE_BYTES = 24 * 1024 * 1024
STALLED_SECONDS = 5.0
MIN_PROGRESS_BYTES = 64 * 1024
_LOOK_SECONDS = 1.0


class Holder(Protocol):
    """A connection, as the budget sees it."""

    @property
    def missing_bytes(self) -> int:
        """What is still to come of its unfinished frame."""

    def wait_for_memory(self, waiting: bool) -> None:
        """Stop reading from the peer, or continue."""

    def cut_for_memory(self, reason: str) -> None:
        """Close the connection; the budget is informed through `hold(…, 0)`."""


@dataclass(slots=True)
class _Small:
    size: int
    moved_at: float


@dataclass(slots=True)
class _Large:
    size: int
    seen_at: float
    seen_size: int = 0
    """How much it was at `seen_at`."""
    waiting: bool = False


class ReceiveBudget:
    """See the module. One per process; owner: the event loop."""

    def __init__(
        self,
        limit_bytes: int = DEFAULT_RECEIVE_BYTES,
        read_bytes: int = MAX_READ_BYTES,
        share_bytes: int = SHARE_BYTES,
    ) -> None:
        """`read_bytes`: what a connection may add before it is asked again."""
        self.limit_bytes = limit_bytes
        self._read_bytes = read_bytes
        self._share_bytes = share_bytes
        self.total_bytes = 0
        self._small: dict[Holder, _Small] = {}
        self._small_bytes = 0
        self._large: dict[Holder, _Large] = {}
        self._waiting = 0
        self._favoured: Holder | None = None
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, holder: Holder, size: int) -> None:
        """`holder` has `size` bytes of an unfinished frame (0: none)."""
        if size <= self._share_bytes:
            if self._large and holder in self._large:
                self._hold_large(holder, 0)
            self._hold_small(holder, size)
        else:
            if holder in self._small:
                self._hold_small(holder, 0)
            self._hold_large(holder, size)

    @property
    def is_full(self) -> bool:
        """Past the limit: who has just begun a frame should not bring much of it at once."""
        return self.total_bytes > self.limit_bytes or self._small_bytes > self.limit_bytes >> 2

    # -- small ones ------------------------------------------------------------------------------------------

    def _hold_small(self, holder: Holder, size: int) -> None:
        known = self._small.get(holder)
        change = size - (known.size if known is not None else 0)
        self.total_bytes += change
        self._small_bytes += change
        if size:
            now = asyncio.get_running_loop().time()
            if known is not None:
                known.size, known.moved_at = size, now
            else:
                self._small[holder] = _Small(size, now)
            if self._small_bytes > self.limit_bytes >> 1:
                self._cut_small()
        elif known is not None:
            del self._small[holder]
        if change < 0 and self._waiting:
            self._go_on()

    def _cut_small(self) -> None:
        """Make room for a quarter more, so that this is done once in a while and not for each one that
        comes."""
        now = asyncio.get_running_loop().time()
        worth_it = self._small_bytes // (
            2 * len(self._small)
        )  # those below hold less than half of it together
        worst = sorted(
            (item for item in self._small.items() if item[1].size >= worth_it),
            key=lambda item: item[1].size * (now - item[1].moved_at),
            reverse=True,
        )
        aim = (self.limit_bytes >> 1) * 3 // 4
        for holder, held in worst:
            if self._small_bytes <= aim:
                return
            holder.cut_for_memory(
                f"it holds {held.size} bytes of an unfinished frame and has sent nothing for {now - held.moved_at:.1f} s, "
                f"and beginnings of frames may take {self.limit_bytes >> 1} bytes together"
            )

    # -- large ones ------------------------------------------------------------------------------------------

    def _hold_large(self, holder: Holder, size: int) -> None:
        known = self._large.get(holder)
        before = known.size if known is not None else 0
        self.total_bytes += size - before
        finished = size < before  # a frame, and perhaps the next one has begun
        if finished and holder is self._favoured:
            self._favoured = None
        if not size or known is None or finished:
            self._forget(holder)
        if not size:
            pass
        elif known is None or finished:
            self._large[holder] = _Large(size, asyncio.get_running_loop().time(), size)
        else:
            known.size = size
        if finished and self._waiting:
            self._go_on()
        held = self._large.get(holder)
        if held is not None and self._has_to_wait() and holder is not self._favoured and not held.waiting:
            held.waiting = True
            self._waiting += 1
            holder.wait_for_memory(True)
            self._never_all_wait()
            self._watch()

    def _forget(self, holder: Holder) -> None:
        gone = self._large.pop(holder, None)
        if gone is not None and gone.waiting:
            self._waiting -= 1

    def _has_to_wait(self) -> bool:
        return self.total_bytes > self.limit_bytes and len(self._large) > 1

    def _go_on(self) -> None:
        """Those who have waited longest, as many as there is room for."""
        reading = len(self._large) - self._waiting
        room = (self.limit_bytes - self.total_bytes) // self._read_bytes - reading
        for holder, held in list(self._large.items()):
            if held.waiting and (room > 0 or len(self._large) == 1):
                room -= 1
                self._let(holder, held)
        self._never_all_wait()

    def _let(self, holder: Holder, held: _Large) -> None:
        if held.waiting:
            held.waiting = False
            self._waiting -= 1
            held.seen_at, held.seen_size = asyncio.get_running_loop().time(), held.size
            holder.wait_for_memory(False)

    def _never_all_wait(self) -> None:
        if not self._large or self._waiting < len(self._large):
            return
        nearest = min(self._large, key=lambda holder: holder.missing_bytes)
        if nearest.missing_bytes <= self.limit_bytes // 2 and self._favoured is None:
            self._favoured = nearest
            self._let(nearest, self._large[nearest])
        else:
            largest = max(self._large, key=lambda holder: self._large[holder].size)
            largest.cut_for_memory(
                f"it holds {self._large[largest].size} bytes of an unfinished frame, and unfinished frames may take "
                f"{self.limit_bytes} bytes together"
            )

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """While some wait: cut those that neither wait nor send."""
        self._timer = None
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        for holder, held in list(self._large.items()):
            if held.waiting or now - held.seen_at < STALLED_SECONDS:
                continue
            if held.size - held.seen_size < MIN_PROGRESS_BYTES:
                holder.cut_for_memory(
                    f"it has sent hardly more of an unfinished frame for {STALLED_SECONDS:g} s while others wait "
                    f"for the {held.size} bytes it holds"
                )
            else:
                held.seen_at, held.seen_size = now, held.size
        self._watch()
