"""Planted bugs in the sync that several disk threads share, and in what a segment takes for synced."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_engine = bugs_in("services/storage/src/waltz_storage/engine")

SHARED_SYNC_BUGS = (
    _engine(
        "failed_sync_concerns_those_it_covered",
        "C3",
        "shared_sync.py",
        "(one for one, state in states.items() if state is not _State.DURABLE)",
        "covered",
        "The kernel dropped what another thread had just written, and the next sync takes it for durable.",
    ),
    _engine(
        "sync_covers_who_is_still_writing",
        "C1",
        "shared_sync.py",
        "if state is _State.WAITING]",
        "if state in (_State.WAITING, _State.WRITING)]",
        "A thread whose write came after the sync had begun is answered as if it was covered.",
    ),
    _engine(
        "waiting_for_a_sync_that_has_begun",
        "C1",
        "shared_sync.py",
        "                if states[number] is _State.DURABLE:\n",
        "                if states[number] is not _State.FAILED and self._next > number + 1:\n",
        "Whoever wrote while a sync was under way believes that it was for him.",
    ),
    _engine(
        "appended_index_counts_as_synced",
        "C1",
        "segment.py",
        "        self._data_synced = self._index_synced = False\n        try:\n",
        "        self._data_synced = False\n        try:\n",
        "A low-water mark calls an index certain that is not on the disk.",
    ),
)
