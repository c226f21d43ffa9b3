"""How much memory the unfinished frames of all connections of a process may take together.

Every connection has `FREE_BYTES` of its own for a frame that is still arriving. What goes beyond is counted here, over
all connections that share the budget. One that would go past the limit is not read from until others have finished
(TCP holds its peer back), so peers that send large frames share the memory instead of adding it up.

Invariants
* The sum stays below the limit plus a half (one frame may finish) plus the first read of each
  connection, except that a single frame larger than the limit is received when it is the only one.
* Nobody waits for ever: when all wait, the largest is cut unless one can finish; and whoever holds bytes and sends
  less than `MIN_PROGRESS_BYTES` more in `STALLED_SECONDS` is cut while others wait.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from waltz_protocol.frame import MAX_READ_BYTES

FREE_BYTES = 64 * 1024
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
        """Stop reading from the peer, or go on."""

    def cut_for_memory(self, reason: str) -> None:
        """Close the connection; the budget is told through `hold(…, 0)`."""


@dataclass(slots=True)
class _Held:
    size: int
    seen_at: float
    seen_size: int = 0
    """How much it was at `seen_at`."""
    waiting: bool = False


class ReceiveBudget:
    """See the module. One per process; owner: the event loop."""

    def __init__(self, limit_bytes: int = DEFAULT_RECEIVE_BYTES, read_bytes: int = MAX_READ_BYTES) -> None:
        """`read_bytes`: what a connection may add before it is asked again."""
        self.limit_bytes = limit_bytes
        self._read_bytes = read_bytes
        self.total_bytes = 0
        self._held: dict[Holder, _Held] = {}
        self._favoured: Holder | None = None
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, holder: Holder, size: int) -> None:
        """`holder` has `size` bytes of an unfinished frame beyond its own share (0: none)."""
        known = self._held.get(holder)
        before = known.size if known is not None else 0
        self.total_bytes += size - before
        finished = size < before  # a frame, and perhaps the next one has begun
        if finished and holder is self._favoured:
            self._favoured = None
        if not size:
            self._held.pop(holder, None)
        elif known is None or finished:
            self._held[holder] = _Held(size, asyncio.get_running_loop().time(), size)
        else:
            known.size = size
        if finished:
            self._go_on()
        held = self._held.get(holder)
        if held is not None and self._is_full() and holder is not self._favoured and not held.waiting:
            held.waiting = True
            holder.wait_for_memory(True)
            self._never_all_wait()
            self._watch()

    def _is_full(self) -> bool:
        return self.total_bytes > self.limit_bytes and len(self._held) > 1

    def _go_on(self) -> None:
        """Those who have waited longest, as many as there is room for."""
        reading = sum(not held.waiting for held in self._held.values())
        room = (self.limit_bytes - self.total_bytes) // self._read_bytes - reading
        for holder, held in list(self._held.items()):
            if held.waiting and (room > 0 or len(self._held) == 1):
                room -= 1
                self._let(holder, held)
        self._never_all_wait()

    def _let(self, holder: Holder, held: _Held) -> None:
        if held.waiting:
            held.waiting = False
            held.seen_at, held.seen_size = asyncio.get_running_loop().time(), held.size
            holder.wait_for_memory(False)

    def _never_all_wait(self) -> None:
        if not self._held or not all(held.waiting for held in self._held.values()):
            return
        nearest = min(self._held, key=lambda holder: holder.missing_bytes)
        if nearest.missing_bytes <= self.limit_bytes // 2 and self._favoured is None:
            self._favoured = nearest
            self._let(nearest, self._held[nearest])
        else:
            largest = max(self._held, key=lambda holder: self._held[holder].size)
            largest.cut_for_memory(
                f"it holds {self._held[largest].size} bytes of an unfinished frame, and unfinished frames may take "
                f"{self.limit_bytes} bytes together"
            )

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """While some wait: cut those that neither wait nor send."""
        self._timer = None
        if not any(held.waiting for held in self._held.values()):
            return
        now = asyncio.get_running_loop().time()
        for holder, held in list(self._held.items()):
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
