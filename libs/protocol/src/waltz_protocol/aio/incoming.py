"""The reading half of a channel: from what the transport brings to the frames that the handler gets, a turn's
worth at a time.

An accepted channel takes turns with the others of its process (`turns`): of what one read brought it hands
over as much as the turn has room for, and the rest, in order, when it is its turn again. Until then it does
not read, and TCP holds its peer back. What it has of a frame that is still arriving counts in the process's
`receive_budget`. A channel that we opened ourselves has neither: it hears what it asked for.

A frame whose handling is itself a lot of work is handled in slices too: the handler gives an iterator, which
is stepped in the connection's turns before the next frame is handed over.

Invariants
* frames are handed over whole and in order; between two of them, or two steps of one, anybody may have had a
  turn;
* on an accepted channel none is handed over after `pause_reading`, before `resume_reading`;
* a channel in line is not read from, nor is one whose handler or memory budget says so.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

from waltz_protocol.aio.receive_budget import SHARE_BYTES, ReceiveBudget
from waltz_protocol.aio.turns import Turns
from waltz_protocol.frame import FrameSplitter, Magic
from waltz_protocol.handshake import HELLO_VERSION, MAX_HELLO_BYTES

FRAME_UNITS = 20
"""Of work (see `turns`) for each frame, whatever it asks for, and one more for each 64 bytes of a read: an
empty frame costs something too."""
_READ_SHIFT = 6
BUSY_READ_BYTES = 4096
"""Read at once while others are in line or memory is short: what waits then is a little of each
connection."""

# Why a channel does not read.
_HANDLER, _MEMORY, _IN_LINE = 1, 2, 4


class FrameHandler(Protocol):
    """The part of a `ChannelHandler` that is used here; the channel is the other half of this object."""

    def frame_received(self, channel: Any, body: memoryview) -> Iterator[int] | None: ...

    def frames_ended(self, channel: Any) -> None: ...


class Incoming(asyncio.BufferedProtocol):
    """See the module. `Channel` is the other half."""

    handler: FrameHandler

    def __init__(self, max_frame_bytes: int, budget: ReceiveBudget | None, turns: Turns | None) -> None:
        """`turns`: of an accepted channel."""
        self.closed = False
        self._max_frame_bytes = max_frame_bytes
        self._budget = budget
        self._turns = turns
        self._splitter = FrameSplitter(
            min(MAX_HELLO_BYTES, max_frame_bytes),
            (Magic.HELLO, HELLO_VERSION),
            scratch=turns.scratch if turns is not None else None,
        )
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._last_read = self._loop.time()
        self._ready = False
        self._received = False
        self._not_reading = 0
        """Why not, one bit for each reason."""
        self._halted = False
        """No frame is to be handed over now."""
        self._delivering = False
        self._steps: Iterator[int] | None = None
        """What is left of the handling of the last frame."""
        self._charged = 0
        self._allowance = 0
        self._stop = False
        """Hand over no more frames in this slice."""
        self._passed_over = False
        """One frame at least, in this slice."""
        self._holds = False

    @abstractmethod
    def _hello_received(self, body: memoryview) -> None: ...

    @abstractmethod
    def _guard(self, call: Callable[[], None]) -> None: ...

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """What came in could not be handled: the connection ends."""

    @abstractmethod
    def abort(self, reason: str) -> None: ...

    @abstractmethod
    def warn(self, text: str) -> None: ...

    # -- what the handler and the memory budget use ----------------------------------------------------------

    def set_max_frame_bytes(self, limit: int) -> None:
        """From the next frame on. For handlers that trust a peer with large frames only after it has said who
        it is."""
        self._splitter.max_frame_bytes = min(limit, self._max_frame_bytes)

    def pass_over(self, judge: Callable[[memoryview, int], bool]) -> None:
        """From the next frame on, one above the limit does not end the connection if `judge` says so, given
        the first `frame.HEAD_BYTES` of its body and its size: it is read and forgotten. For handlers that
        have another way to refuse it; for them it is work, and `frames_ended` follows."""

        def passed(head: memoryview, size: int) -> bool:
            self._passed_over = judge(head, size)
            self._charged += FRAME_UNITS
            return self._passed_over

        self._splitter.passes_over = passed

    def pause_reading(self) -> None:
        """Stop reading from the socket. An accepted channel keeps frames that were already read; on a
        connecting one they are still delivered."""
        if not self.closed:
            self._halted = self._stop = self._turns is not None
            self._stop_reading(_HANDLER)

    def charge(self, units: int) -> None:
        """The frame just handed over costs so much more work (see `turns`) than an ordinary one."""
        self._charged += units
        if self._charged > self._allowance:
            self._stop = self._turns is not None

    def resume_reading(self) -> None:
        """Undo `pause_reading`; the silence meanwhile does not count as idleness of the peer."""
        if not self._not_reading & _HANDLER or self.closed:
            return
        self._halted = False
        if self._turns is not None and not self._delivering and not self._not_reading & _IN_LINE:
            self._see_to_the_rest(self._turns)
        self._read_on(_HANDLER)

    @property
    def missing_bytes(self) -> int:
        """What is still to come of the frame that is arriving."""
        return self._splitter.missing_bytes

    def wait_for_memory(self, waiting: bool) -> None:
        """Called by the receive budget: stop reading, or continue."""
        if self.closed:
            return
        if waiting:
            self._stop_reading(_MEMORY)
        else:
            self._read_on(_MEMORY)

    def cut_for_memory(self, reason: str) -> None:
        """Called by the receive budget: this peer goes, so that the others can continue."""
        self.warn(f"the connection is cut: {reason}")
        self.abort(reason)
        self._splitter.discard()

    def _stop_reading(self, why: int) -> None:
        before, self._not_reading = self._not_reading, self._not_reading | why
        if not before and self._transport is not None:
            self._transport.pause_reading()

    def _read_on(self, why: int) -> None:
        if self._not_reading & why:
            self._not_reading &= ~why
            self._last_read = self._loop.time()
            if not self._not_reading and self._transport is not None and not self.closed:
                self._transport.resume_reading()

    # -- what the transport calls ----------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for the transport to read into."""
        room = self._splitter.get_buffer(sizehint)
        turns, budget = self._turns, self._budget
        if (
            turns is not None
            and not self._holds
            and (turns.behind or (budget is not None and budget.is_full))
        ):
            return room[:BUSY_READ_BYTES]
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the whole frames of one socket read, or get in line for it."""
        if self.closed:
            return
        self._last_read = self._loop.time()
        self._received = True
        self._splitter.received(nbytes)
        turns = self._turns
        if turns is None:
            self._deliver(None)
        elif self._halted or self._not_reading & _IN_LINE:  # the transport had more in hand
            self._splitter.keep()
        elif turns.free:
            turns.spend(self._deliver(turns.left) + (nbytes >> _READ_SHIFT))
        else:
            self._get_in_line(turns)

    # -- inside ----------------------------------------------------------------------------------------------

    def work(self, units: int) -> int:
        """Called by `turns`: the next frames."""
        if self.closed or self._halted:
            self._read_on(_IN_LINE)
            return 0
        return self._deliver(units)

    def _get_in_line(self, turns: Turns) -> None:
        self._splitter.keep()
        self._stop_reading(_IN_LINE)
        turns.join(self)

    def _deliver(self, units: int | None) -> int:
        """Hand over frames for about so many units of work (None: all there are), and see to what is left;
        returns the units."""
        handler = self.handler
        count, delivered = 0, False
        error: Exception | None = None
        self._delivering = True
        self._charged, self._allowance, self._stop, self._passed_over = 0, units or 0, False, False
        limit = None if units is None else units // FRAME_UNITS + 1
        try:
            if self._steps is not None:
                delivered = True
                if not self._stepped(units):
                    limit = 0
            for _magic, _version, body in islice(self._splitter.frames(), limit):
                count += 1
                if self._ready:
                    delivered = True
                    steps = handler.frame_received(self, body)
                    if steps is not None:
                        self._steps = steps
                        if not self._stepped(units):
                            break
                else:
                    self._hello_received(body)
                    handler = self.handler  # it may have chosen another one by the version
                if self._stop and (units is not None or self._halted):
                    break
        except Exception as e:
            error = e
        self._delivering = False
        if delivered or self._passed_over:
            try:
                handler.frames_ended(self)
            except Exception as e:
                self.failed(e)
        if error is not None:
            self.failed(error)
        elif self._turns is not None and not self.closed:
            self._see_to_the_rest(self._turns)
        return count * FRAME_UNITS + self._charged

    def _stepped(self, units: int | None) -> bool:
        """Continue with the handling of a frame as far as this slice has room for it; True when it is
        done."""
        if self._steps is not None:
            for cost in self._steps:
                self._charged += cost
                if units is not None and self._charged >= units:
                    self._stop = True
                    return False
        self._steps = None
        return True

    def _see_to_the_rest(self, turns: Turns) -> None:
        """Of what was read: whole frames wait for their turn, or for the handler; the beginning of one for
        the peer."""
        splitter = self._splitter
        if self._halted:
            splitter.keep()
            unfinished = min(splitter.buffered_bytes, SHARE_BYTES)
        elif self._steps is not None or splitter.has_frame:
            self._get_in_line(turns)
            return
        else:
            splitter.settle()
            unfinished = splitter.buffered_bytes
        if self._not_reading:
            self._read_on(_IN_LINE)
        if self._budget is not None and (unfinished or self._holds):
            self._holds = unfinished > 0
            self._budget.hold(self, unfinished)

    def _deliver_what_waits(self) -> None:
        """The peer has ended the stream in order: what it sent before still counts, and is not more than one
        read."""
        if self._not_reading & _IN_LINE and not self.closed and not self._halted:
            self._deliver(None)


def peer_address(peername: Any) -> str:
    """For people."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return str(peername or "?")
