"""When a session that has not opened is replaced for the sake of replicas that are out of it. Pure.

Only the next session can take such a replica back, and it begins anew: what was copied onto a lost disk is
cut, what was compared is compared again. A session that is always replaced before the others are done never
opens, though they may need nothing of the replica. One that is never replaced may stay closed for the hours
of a copy, though the replica was out for a moment only. So each session gets twice the time of the one before
it: what is thrown away took less than twice as long as what is needed, and the replica is tried again in
between.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = float("inf")
UNHEARD_SECONDS = 30.0
"""So long at most a session is kept for a replica that may answer yet: longer than its node's back-off."""


class _Out(NamedTuple):
    reason: str
    pause_seconds: float
    due_at: float


class Postponed:
    """The replicas that are out of one session before it has opened. Owner: the session run. All times are in
    seconds of the loop's clock.

    Each of them is tried again: by a session that replaces this one before it opens, at `due_at`, or by one
    that is due when its pause has passed since this one opened.
    """

    def __init__(self, cut_short_seconds: float, grace_seconds: float) -> None:
        """`cut_short_seconds`: how long the last session was kept that was cut short, 0 for none;
        `grace_seconds`: for a connection that is made again."""
        self.cut_short_seconds = cut_short_seconds
        """The same for the next session."""
        self.due_at = NEVER
        """When the session is to be replaced, by the last judgement."""
        self._grace_seconds = grace_seconds
        self._outs: dict[str, _Out] = {}
        self._kept_from: float | None = None
        self._kept_at = -NEVER

    def add(self, name: str, reason: str, pause_seconds: float, now: float) -> None:
        """A replica is out, and is to be tried again after a pause; of several the shortest counts."""
        known, out = self._outs.get(name), _Out(reason, pause_seconds, now + pause_seconds)
        if known is None or out.due_at < known.due_at:
            self._outs[name] = out

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._outs)

    def judge(self, now: float, *, only_to_be_listed: bool, advances: bool, may_advance: bool) -> None:
        """Decide when the session is to be replaced, if a replica is out: not while a quorum of the others is
        recovered (`only_to_be_listed`); while they advance (`advances`), not before it was kept for twice as
        long as the one that was cut short before; likewise, up to `UNHEARD_SECONDS`, while they would if
        another one answered that may do so (`may_advance`); else when the first pause has passed, and the
        grace time since they advanced."""
        if only_to_be_listed:
            self.due_at = NEVER
            return
        due_at = min(out.due_at for out in self._outs.values())
        if advances or may_advance:
            self._kept_at = now
            if self._kept_from is None:  # not the time before: nothing of it was lost by this replica
                self._kept_from = now
            kept_seconds = 2 * self.cut_short_seconds
            if not advances:
                kept_seconds = min(kept_seconds, UNHEARD_SECONDS)
            self.due_at = max(due_at, self._kept_from + kept_seconds)
        else:
            self.due_at = max(due_at, self._kept_at + self._grace_seconds)

    def cut_short(self, now: float) -> str:
        """It is `due_at`, and the session is replaced; returns why."""
        if self._kept_from is not None and now == self._kept_at:
            self.cut_short_seconds = now - self._kept_from
        return self._reason_of(min(self._outs, key=lambda name: self._outs[name].due_at))

    def opened(self) -> list[tuple[str, float]]:
        """The session has opened: why it is to be replaced, and after how many seconds."""
        return [(self._reason_of(name), out.pause_seconds) for name, out in self._outs.items()]

    def _reason_of(self, name: str) -> str:
        return f"{name} is out: {self._outs[name].reason}"
