"""Sockets of channels: their options, and a watch that distinguishes a peer that does not read from one that
is not there.

A peer that does not read closes its receive window, and its kernel continues acknowledging our probes. One
that vanished acknowledges nothing. TCP_USER_TIMEOUT takes both for dead: it counts the time of a closed
window as well. It is right towards storage nodes, which always read; clients may stop for minutes (an
application's callback, our own flow control).

For those it is switched off, which also lets TCP keep-alive find peers that vanish while nothing is on its
way. What is on its way when they vanish is found by looking at the kernel's own figures (TCP_INFO) from time
to time.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

CHECKS = 3
"""So many looks in a row, a third of the limit apart, must find nothing acknowledged: a probe or a segment
that has just been sent is no reason. A vanished peer is found after the limit, and within twice the limit
while segments are on their way. Linux probes a closed window every 120 s at the longest, which comes on top
there."""
_KEEP_ALIVE_PROBES = 3
_TCP_INFO = struct.Struct("=8B13I")
_PROBES, _UNACKNOWLEDGED, _LAST_ACK_MS = 3, 12, 20


def is_tcp(sock: Any) -> bool:
    """False for no socket at all, and for those of other families."""
    return sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6)


def set_options(sock: Any, timeout_ms: int, *, peers_may_pause: bool) -> None:
    """No delay, keep-alive, and an end for peers that vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not peers_may_pause:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
    elif hasattr(socket, "TCP_KEEPIDLE"):
        seconds = max(1, timeout_ms // 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, seconds // 2))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // (2 * _KEEP_ALIVE_PROBES)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEP_ALIVE_PROBES)


class PeerWatch:
    """Looks at one connection every `timeout_ms` / `CHECKS`. Owner: the channel."""

    def __init__(self, sock: Any, timeout_ms: int, not_reading_seconds: float, now: float) -> None:
        self._sock = sock
        self._timeout_ms = timeout_ms
        self._not_reading_seconds = not_reading_seconds
        self._every_seconds = timeout_ms / 1000 / CHECKS
        self._silent_checks = 0
        self._unwritable_since: float | None = None
        self.due_at = now + self._every_seconds

    def check(self, now: float, *, writable: bool) -> str | None:
        """Why the peer is to be cut, or None. `writable`: less waits for it than the channel's high mark."""
        self.due_at = now + self._every_seconds
        self._silent_checks = self._silent_checks + 1 if self._acknowledges_nothing() else 0
        if self._silent_checks >= CHECKS:
            return f"the peer acknowledged nothing for {self._timeout_ms / 1000:g} s"
        if writable:
            self._unwritable_since = None
        elif self._unwritable_since is None:
            self._unwritable_since = now
        elif now >= self._unwritable_since + self._not_reading_seconds:
            return f"the peer read too little for {self._not_reading_seconds:g} s"
        return None

    def _acknowledges_nothing(self) -> bool:
        if not hasattr(socket, "TCP_INFO"):
            return False
        try:
            raw = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except (OSError, ValueError):  # uvloop has closed it, and the channel does not know yet
            return False
        if len(raw) < _TCP_INFO.size:
            return False
        info = _TCP_INFO.unpack(raw)
        waiting = info[_UNACKNOWLEDGED] > 0 or info[_PROBES] > 0
        return bool(waiting and info[_LAST_ACK_MS] >= self._timeout_ms)
