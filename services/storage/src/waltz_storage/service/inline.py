"""When a job runs on the loop itself instead of a disk thread (pure: decisions only, durations are given).

A hand-over to a thread and back costs two wake-ups of sleeping threads and two changes of the interpreter's
lock. For a lone record, with its sync of 60-150 us on a fast disk, that is more than everything else:
measured over three nodes with TLS, 1,240 us of CPU per append went down to 960, and the fastest tenth of the
latencies from 1.22 to 1.13 ms. Nobody else wants the disk then, and what arrives meanwhile waits in the
socket, as it would wait in the queue.

Only a single append of a single record qualifies. With more in flight the threads win, although they cost
more CPU: the next frames are decrypted and parsed while a sync runs, and syncs of several partitions overlap
(10 writers on one partition: 3,200 appends/s with threads, 2,500 inline). On a machine with more busy
processes than cores the threads won in our runs (median of one writer, load 8 on 2 cores: 1.8 ms with
threads, 2.7 inline), so a storage node there wants `storage.disk.inline: false`.

The price is that the loop is blocked during a sync. So the job must be alone (no other job runs, nothing
else arrived in this turn) and the disk has been fast lately, as measured on every such job wherever it ran.
One inline job slower than `max_seconds` sends everything back to the threads, until so many jobs in a row
were fast there (`trial_jobs`, doubled each time up to `max_trial_jobs`). A disk that hangs can thus hold
up the loop once; appends to that disk would wait for the same sync on a thread, and the next ones already go
there.
"""

from __future__ import annotations

from typing import NamedTuple

from waltz_storage.service.requests import APPENDS, Call, Request


class InlineLimits(NamedTuple):
    """Bounds of what may run on the loop: one append of one record."""

    max_bytes: int = 64 << 10
    """Of the request; a write of this size costs little beside its sync."""
    max_seconds: float = 0.02
    """One inline job slower than this ends running inline."""
    usual_seconds: float = 0.002
    """The moving average of the durations has to stay below this."""
    trial_jobs: int = 32
    max_trial_jobs: int = 4096
    calm_jobs: int = 10_000
    """After so many inline jobs without a slow one the trial is short again."""


_AVERAGE_WEIGHT = 0.0625


class InlineGate:
    """Whether the next small job may run on the loop. Starts on the threads: the disk is measured first."""

    def __init__(self, limits: InlineLimits) -> None:
        self.limits = limits
        self._average_seconds = 0.0
        self._trial = limits.trial_jobs
        self._trial_left = limits.trial_jobs
        self._calm = 0

    @property
    def open(self) -> bool:
        """A small job that is alone may run on the loop."""
        return self._trial_left <= 0 and self._average_seconds <= self.limits.usual_seconds

    def took(self, seconds: float, *, inline: bool) -> None:
        """A small job took so long, on the loop or on a thread (there the wait for the interpreter is
        included)."""
        limits = self.limits
        self._average_seconds += _AVERAGE_WEIGHT * (seconds - self._average_seconds)
        slow = seconds > limits.max_seconds
        if not inline:
            self._trial_left = self._trial if slow else self._trial_left - 1
        elif slow:
            self._trial_left = self._trial
            self._trial = min(self._trial * 2, limits.max_trial_jobs)
            self._calm = 0
        else:
            self._calm += 1
            if self._calm >= limits.calm_jobs:
                self._calm = 0
                self._trial = limits.trial_jobs


def is_lone(items: list[Request | Call], limits: InlineLimits) -> bool:
    """A single append of a single record. Reads may meet a cold page, calls of the admin port anything."""
    if len(items) != 1:
        return False
    item = items[0]
    if isinstance(item, Call) or item.kind not in APPENDS or item.batch is None:
        return False
    return item.batch.record_count == 1 and item.size_bytes <= limits.max_bytes
