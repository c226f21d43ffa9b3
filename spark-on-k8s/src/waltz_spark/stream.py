"""Streaming reads: where a query is, how far the next trigger goes, and what its tasks read.

The reader lives in one Python process of the driver for as long as the query; an exception that escapes ends
the query, so what may pass on its own is waited for here. The log is dense and never changes, so (start, end]
means the same rows whenever a batch is planned again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from waltz_spark.admission import admit_bytes, admit_transactions, sample_ids
from waltz_spark.batch import option_named
from waltz_spark.connection import Connection, give_back, take
from waltz_spark.errors import DataLossError, OptionError, UnavailableError, WaltzSparkError, in_one_line
from waltz_spark.log_ends import all_ends, behind, ends_now
from waltz_spark.offsets import Offsets, PlaceError, beyond, chosen_partitions, clipped, resolve
from waltz_spark.planning import Range, cut, ranges_between
from waltz_spark.reading import RangePartition, read_range

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

    from waltz_client import WaltzClient
    from waltz_spark.options import ReadOptions
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1 do not have it, and never look for it
        SupportsTriggerAvailableNow = object

log = logging.getLogger("waltz_spark")

MARK_SECONDS = 2.0
"""How long a trigger waits for a partition that does not report where it ends."""
SAMPLES = 8
"""Payloads looked at per partition and trigger to know how large they are."""
SAMPLES_AT_ONCE = 16
"""Of them, of all partitions together: as many payloads are in the driver's memory."""


class RefusedStreamReader(DataSourceStreamReader):
    """In place of a reader whose options or columns are wrong: whatever Spark asks first raises the error."""

    def __init__(self, error: WaltzSparkError) -> None:
        self._error = error

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Of a new query."""
        raise self._error

    @in_one_line()
    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802
        """Of a restarted one."""
        raise self._error

    @in_one_line()
    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:
        """Of a batch that is repeated."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """No task comes of it."""
        raise self._error

    def stop(self) -> None:
        """It has nothing open."""


class WaltzStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. `read` runs elsewhere, on a pickled copy that has the options only.

    Invariants: offsets name all partitions of the query, and no place that was not committed when it was
    given out; under AvailableNow none behind the target.
    """

    def __init__(
        self,
        options: ReadOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._connection: Connection | None = None
        self._initial: Offsets | None = None
        self._latest: dict[int, int] = {}
        self._silent: dict[int, tuple[float, float]] = {}  # since when, and how long it was asked since
        self._target: dict[int, int] | None = None
        self._last_trigger: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; the connection stays here."""
        return {"_options": self._options}

    # -- the driver ------------------------------------------------------------------------------------------

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins; a restarted one continues from its checkpoint, but for one whose first
        batch was not committed: that asks again, see `partitions`.

        Spark 4.0 and 4.1 ask for the end of the first batch before: it does not end before it begins. Spark
        4.2 asks twice, and gets the same.
        """
        if self._initial is not None:
            return self._initial.to_json()
        unknown = [p for p in self._partitions if p not in self._latest]
        ends = {**self._latest, **all_ends(self._driver, unknown, self._timeout_seconds)}
        with option_named("startingTransactions"):
            places = resolve(self._options.starting, ends)
        for partition, place, end in self._behind(places, ends):
            self._lost(
                f"option startingTransactions: partition {partition} ends before {end}, {place} was asked for"
            )
        self._initial = self._offsets(clipped(places, ends))
        return self._initial.to_json()

    @in_one_line()
    def latestOffset(  # noqa: N802
        self, start: Mapping[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """How far the next trigger goes: to the end of the log, or as far as the limits allow.

        Without arguments (Spark 4.0 and 4.1): always to the end. A partition that does not answer now is left
        where it is, under AvailableNow read up to the target; UnavailableError when it has not answered for
        `readTimeoutMs`, see `_known_ends`.
        """
        if start is None:
            return self._offsets(self._latest_ends()).to_json()
        ends = self._known_ends()
        begin = self._checked_start(start, ends)
        starts = begin.next_ids
        for partition in self._partitions:
            start_id = starts.get(partition, 0)
            # What is promised up to a target is read, and the task waits for it: an offset that does not move
            # would end the query as if everything had been read.
            promised = self._target.get(partition, 0) if self._target is not None else 0
            ends.setdefault(partition, max(promised, start_id))
        if self._target is not None:
            ends = {
                p: max(min(end, self._target.get(p, end)), min(starts.get(p, 0), end))
                for p, end in ends.items()
            }
        admitted = self._admitted(starts, ends, limit)
        kept = {
            p: place for p, place in starts.items() if p not in admitted
        }  # no longer chosen: not forgotten
        next_ids = {**admitted, **kept}
        if begin == self._initial:
            began: Mapping[int, int] | None = starts
        else:  # where nothing has moved, equal text: else it would be a batch
            began = begin.began if next_ids == starts else None
        return Offsets(self._driver.identity.key, next_ids, began).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options, as Spark shows it."""
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
        )

        if self._options.max_transactions_per_trigger is not None:
            return ReadMaxRows(self._options.max_transactions_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_transactions_per_trigger is not None:
            return ReadMinRows(self._options.min_transactions_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log as last seen, for the progress of the query and its lag."""
        return self._offsets(self._latest).to_json() if self._latest else None

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Everything committed now is the target; nothing after it will be read."""
        self._target = all_ends(self._driver, self._partitions, self._timeout_seconds)

    @in_one_line()
    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """The tasks of a trigger; the same for the same offsets, apart from how they are cut.

        A batch that was not committed is planned again after a restart: it may be one of another cluster, or
        of a log that was restored since. The first one begins where it began, whatever
        `startingTransactions` is now.
        """
        options = self._options
        first, last = self._parsed(start), self._parsed(end)
        key = self._driver.identity.key
        if last.cluster != key:
            self._lost_cluster(last.cluster, key)
            return []  # what follows begins anew, with what is here
        if last.began is not None and first == self._initial:
            first = Offsets(last.cluster, last.began)
        self._check_continuity(first, last)
        starts = first.next_ids if first.cluster == key else {}
        ranges = cut(
            self._existing(ranges_between(starts, last.next_ids)),
            options.min_partitions,
            options.max_transactions_per_partition,
        )
        return [RangePartition(one, key) for one in ranges]

    def commit(self, end: Mapping[str, object]) -> None:
        """The checkpoint has it. The log keeps everything, so there is nothing to release."""

    def stop(self) -> None:
        """The query ends: close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            give_back(connection)
            connection.close_now()

    # -- tasks -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_range(self._options, partition)

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _driver(self) -> Connection:
        connection = self._connection
        if connection is None or connection.ended:
            if connection is not None:
                give_back(connection)
            connection = self._connection = take(self._options.client)
        return connection

    @property
    def _partitions(self) -> tuple[int, ...]:
        with option_named("partitions"):
            return chosen_partitions(self._options.partitions, self._driver.identity.num_partitions)

    @property
    def _timeout_seconds(self) -> float:
        return self._options.read_timeout_ms / 1000

    def _offsets(self, places: Mapping[int, int]) -> Offsets:
        return Offsets(self._driver.identity.key, places)

    def _parsed(self, given: Mapping[str, object]) -> Offsets:
        try:
            return Offsets.from_json(given)
        except PlaceError as error:
            raise OptionError(f"the checkpoint is not one of this source: {error}") from None

    def _known_ends(self) -> dict[int, int]:
        """Of the partitions that answer now. UnavailableError when one has not for `readTimeoutMs`, and was
        asked for as long: triggers may be far apart."""
        ends, silent = self._asked(self._partitions, MARK_SECONDS)
        now, timeout_seconds = self._clock(), self._timeout_seconds
        overdue = [p for p in silent if now - self._silent[p][0] >= timeout_seconds]
        if overdue:
            asked = min(self._silent[p][1] for p in overdue)
            if asked < timeout_seconds:
                late, _ = self._asked(overdue, timeout_seconds - asked)
                ends |= late
        for partition, reason in silent.items():
            if partition in ends:
                continue
            if partition in overdue:
                seconds = self._clock() - self._silent[partition][0]
                raise UnavailableError(
                    f"partition {partition} has not reported its end for {seconds:.0f} s: {reason}"
                )
            log.warning("waltz: partition %d does not report its end: %s", partition, reason)
        self._latest.update(ends)
        return ends

    def _asked(self, partitions: Sequence[int], seconds: float) -> tuple[dict[int, int], dict[int, str]]:
        """As `ends_now`; keeps who is silent."""
        began = self._clock()
        ends, silent = ends_now(self._driver, partitions, min(seconds, self._timeout_seconds))
        now = self._clock()
        for partition in ends:
            self._silent.pop(partition, None)
        for partition in silent:
            since, asked = self._silent.get(partition, (now, 0.0))
            self._silent[partition] = (since, asked + now - max(began, since))
        return ends, silent

    def _latest_ends(self) -> dict[int, int]:
        """The end of every partition, without a start to fall back on: one without an answer has the end it
        had last, and one that has never answered is waited for. Nothing moves back: an old owner may
        answer."""
        before = dict(self._latest)
        now = self._known_ends()
        unknown = [p for p in self._partitions if p not in before and p not in now]
        if unknown:
            now |= all_ends(self._driver, unknown, self._timeout_seconds)
        self._latest = {p: max(before.get(p, 0), now.get(p, 0)) for p in self._partitions}
        starting = self._options.starting
        if not before and not isinstance(starting, str):  # a first batch does not end before it begins
            self._behind(starting, self._latest)
        return self._latest

    def _check_continuity(self, first: Offsets, last: Offsets) -> None:
        """That a trigger begins where this log, and not another one or an older state of it, was read."""
        if first.cluster != last.cluster:
            self._lost_cluster(first.cluster, last.cluster)
            return
        for partition in sorted(first.next_ids.keys() - last.next_ids.keys()):
            self._lost_partition(partition)
        for partition, place, end in beyond(first.next_ids, last.next_ids):
            if first == self._initial:
                self._lost(
                    f"the first batch of the query was not committed: it ends before transaction {end} of partition {partition}, and would "
                    f"begin at {place} now; set startingTransactions to where it began until it is committed"
                )
            else:
                self._lost_end(partition, place, end)

    def _existing(self, ranges: Sequence[Range]) -> list[Range]:
        """What there is of them. Only a batch that is repeated can end behind what this reader has seen."""
        starts = {one.partition: one.first for one in ranges}
        stops = {one.partition: one.last + 1 for one in ranges}
        seen = {p: max(self._latest.get(p, 0), (self._target or {}).get(p, 0)) for p in stops}
        if beyond(stops, seen):
            ends = self._known_ends()
            for partition, place, end in self._behind(stops, ends):
                self._lost_end(partition, place, end)
            stops = clipped(stops, ends)
        return ranges_between(starts, stops)

    def _checked_start(self, start: Mapping[str, object], ends: dict[int, int]) -> Offsets:
        """Where the query is, if the log has that place."""
        begin = self._parsed(start)
        key = self._driver.identity.key
        if begin.cluster != key:
            self._lost_cluster(begin.cluster, key)
            return Offsets(key, {})
        for partition in sorted(set(begin.next_ids) - set(self._partitions)):
            self._lost_partition(partition)
        for partition, place, end in self._behind(begin.next_ids, ends):
            self._lost_end(partition, place, end)
        return begin

    def _behind(self, places: Mapping[int, int], ends: dict[int, int]) -> list[tuple[int, int, int]]:
        """See `log_ends.behind`."""
        found = behind(self._driver, places, ends, self._timeout_seconds, self._clock, self._sleep)
        self._latest.update(ends)
        return found

    def _lost_cluster(self, read: str, here: str) -> None:
        self._lost(f"the checkpoint belongs to another cluster (key {read}, this one has {here})")

    def _lost_partition(self, partition: int) -> None:
        self._lost(f"partition {partition} is in the checkpoint and is no longer read (option partitions)")

    def _lost_end(self, partition: int, place: int, end: int) -> None:
        self._lost(
            f"partition {partition} was read up to transaction {place - 1}, and its log ends before {end}"
        )

    def _lost(self, line: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{line} (failOnDataLoss = false continues with what exists)")
        log.warning("waltz: %s", line)

    def _admitted(
        self, starts: Mapping[int, int], ends: Mapping[int, int], limit: ReadLimit | None
    ) -> dict[int, int]:
        if type(limit).__name__ == "ReadAllAvailable":
            return dict(ends)
        rows, size = self._options.max_transactions_per_trigger, self._options.max_bytes_per_trigger
        if self._target is None and self._waits_for_more(starts, ends):
            return {p: min(starts.get(p, 0), end) for p, end in ends.items()}
        admitted = dict(ends)
        if rows is not None:
            admitted = admit_transactions(starts, admitted, rows)
        if size is not None:
            admitted = admit_bytes(starts, admitted, size, self._mean_bytes(starts, admitted))
        return admitted

    def _waits_for_more(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        """Whether `minTransactionsPerTrigger` holds a trigger back; the first one, and one that was due,
        are not."""
        wanted, now = self._options.min_transactions_per_trigger, self._clock()
        waiting = sum(max(end - starts.get(p, 0), 0) for p, end in ends.items())
        last = self._last_trigger
        due = last is None or now - last >= self._options.max_trigger_delay_ms / 1000
        if wanted is not None and waiting < wanted and not due:
            return True
        if waiting:
            self._last_trigger = now
        return False

    def _mean_bytes(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, float]:
        """The mean payload of what waits in each partition, by a sample of it."""
        wanted = [(p, i) for p, end in ends.items() for i in sample_ids(starts.get(p, 0), end, SAMPLES)]
        seconds = self._timeout_seconds

        async def sizes(client: WaltzClient) -> list[int]:
            turn = asyncio.Semaphore(SAMPLES_AT_ONCE)

            async def size(partition: int, transaction_id: int) -> int:
                async with turn:
                    return len(await client.get_data(partition, transaction_id, deadline_seconds=seconds))

            try:
                async with asyncio.TaskGroup() as group:
                    reads = [group.create_task(size(p, i)) for p, i in wanted]
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            return [read.result() for read in reads]

        found: dict[int, list[int]] = {}
        for (partition, _), size in zip(wanted, self._driver.call(sizes), strict=True):
            found.setdefault(partition, []).append(size)
        return {partition: max(sum(of) / len(of), 1.0) for partition, of in found.items()}
