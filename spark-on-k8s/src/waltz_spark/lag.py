"""Lag: how many committed transactions a streaming query has not read yet, per partition, after every
trigger.

`spark.streams.addListener(LagListener())` logs a line per trigger and keeps the last figures; a function
given to it may pass them on. It needs nothing but what Spark reports: the end offset of the trigger and the
latest offset of the source.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from waltz_spark.offsets import Offsets, PlaceError, lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("waltz_spark.lag")


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one source of a query (by its name, or its id without one) after a trigger."""

    query: str
    batch_id: int
    cluster: str
    per_partition: Mapping[int, int]
    source: int | None = None
    """Its position among the sources of the query, from 0, where more than one of them is of ours."""

    @property
    def total(self) -> int:
        """Over all partitions."""
        return sum(self.per_partition.values())

    def __str__(self) -> str:
        behind = ", ".join(f"{p}: {n}" for p, n in self.per_partition.items() if n)
        where = f" (partition {behind})" if behind else ""
        source = "" if self.source is None else f", source {self.source}"
        return f"query {self.query}{source}, batch {self.batch_id}: {self.total} transactions behind{where}"


def lag_of_source(
    query: str, batch_id: int, end_offset: str | None, latest_offset: str | None, source: int | None = None
) -> Lag | None:
    """The lag that the offsets of one source of a progress report show; None when it is not one of our
    sources, or reports nothing."""
    end, latest = _offsets(end_offset), _offsets(latest_offset)
    if end is None or latest is None or end.cluster != latest.cluster:
        return None
    return Lag(query, batch_id, latest.cluster, lag(end, latest), source)


def _offsets(text: str | None) -> Offsets | None:
    """None for those of another source."""
    try:
        return Offsets.from_json(json.loads(text or "null"))
    except (ValueError, TypeError, AttributeError, PlaceError):
        return None


class LagListener(StreamingQueryListener):
    """See the module. Called by Spark in a thread of the driver program; `latest` is by query name or id; of
    a query with several sources of ours by `NAME#SOURCE`, see `Lag.source`.

    A restart or a trigger without new data reports too: Spark sends an idle event every ten seconds or so
    then, without offsets.
    """

    def __init__(self, on_lag: Callable[[Lag], object] | None = None) -> None:
        self.latest: dict[str, Lag] = {}
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """One trigger is done."""
        progress = event.progress
        query = progress.name or str(progress.id)
        several = sum(_offsets(source.endOffset) is not None for source in progress.sources) > 1
        for position, source in enumerate(progress.sources):
            number = position if several else None
            found = lag_of_source(query, progress.batchId, source.endOffset, source.latestOffset, number)
            if found is not None:
                self.latest[f"{query}#{number}" if several else query] = found
                log.log(logging.INFO if found.total else logging.DEBUG, "%s", found)
                if self._on_lag is not None:
                    self._on_lag(found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new: what was reported last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The figures of an ended query stay readable."""
