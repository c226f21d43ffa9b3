"""Log lines that a peer can cause at will: as many per address as somebody reads, and the number of those
left out."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

BURST = 20
LINES_PER_SECOND = 2.0
_MAX_ADDRESSES = 256


@dataclass(slots=True)
class _Allowance:
    lines: float
    at: float
    left_out: int = 0


class PeerLog:
    """Warnings about peers, `BURST` at once and `LINES_PER_SECOND` on average for each address."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._addresses: OrderedDict[str, _Allowance] = OrderedDict()

    def warn(self, peer: str, text: str) -> None:
        """A line that names the peer, or nothing when its address has used up its allowance."""
        now = self._clock()
        address = peer.rpartition(":")[0]
        allowance = self._addresses.get(address)
        if allowance is None:
            allowance = self._addresses[address] = _Allowance(BURST, now)
            if len(self._addresses) > _MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        allowance.lines = min(BURST, allowance.lines + (now - allowance.at) * LINES_PER_SECOND)
        allowance.at = now
        if allowance.lines < 1:
            allowance.left_out += 1
            return
        allowance.lines -= 1
        more = f" ({allowance.left_out} lines about {address} left out before)" if allowance.left_out else ""
        allowance.left_out = 0
        self._log.warning("%s: %s%s", peer, text, more)
