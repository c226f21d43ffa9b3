"""The rows of the page *Partitions* as JSON: each is made again only when it has changed, and a viewer gets
those that have changed since the observation that it has.

Everybody who has the same observation gets the same bytes.
"""

from __future__ import annotations

import json

from waltz_admin.cluster_status import PartitionStatus
from waltz_tools.console.collector import Observation
from waltz_tools.console.pages import partition_row

_Inputs = tuple[PartitionStatus, float | None, float | None]
MAX_KEPT = 16
"""Answers that are kept for other viewers: as many as there are observations that a live page may have."""


class PartitionRows:
    """Bounded by the number of partitions. Observations are taken in order (`take`)."""

    def __init__(self) -> None:
        self._number = 0
        self._inputs: list[_Inputs] = []
        self._texts: list[str] = []
        self._changed: list[int] = []
        """Number of the observation in which the row became what it is."""
        self._answers: dict[int, str] = {}

    def take(self, seen: Observation) -> None:
        """Make the rows that have changed; nothing for an observation that was taken."""
        if seen.number == self._number and len(self._inputs) == len(seen.status.partitions):
            return
        if len(self._inputs) != len(seen.status.partitions):
            self._inputs, self._texts, self._changed = [], [], []
        for index, one in enumerate(seen.status.partitions):
            inputs = one, seen.rates.partitions.get(one.partition_id), seen.since.means.get(one.partition_id)
            if index == len(self._inputs):
                self._inputs.append(inputs)
                self._texts.append(json.dumps(partition_row(seen, one)))
                self._changed.append(seen.number)
            elif not _same(self._inputs[index], inputs):
                self._inputs[index] = inputs
                text = json.dumps(partition_row(seen, one))
                if text != self._texts[index]:
                    self._texts[index], self._changed[index] = text, seen.number
        self._number = seen.number
        self._answers.clear()

    def text(self, since: int) -> str:
        """The rows that have changed after the observation `since`, with the number of the newest one, as the
        members of a JSON object; all of them when `since` is no observation that was taken."""
        if not 0 < since <= self._number:
            since = 0
        made = self._answers.get(since)
        if made is None:
            rows = [text for text, at in zip(self._texts, self._changed, strict=True) if at > since]
            made = f'"number": {self._number}, "since": {since}, "rows": [{", ".join(rows)}]'
            if len(self._answers) < MAX_KEPT:
                self._answers[since] = made
        return made


def _same(one: _Inputs, other: _Inputs) -> bool:
    return one[0] is other[0] and one[1:] == other[1:]
