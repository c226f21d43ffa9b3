"""Batch reads: exact ranges of what is committed when the query is planned."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from waltz_spark.connection import lease
from waltz_spark.errors import DataLossError, OptionError, in_one_line
from waltz_spark.log_ends import all_ends, behind
from waltz_spark.offsets import PlaceError, Position, beyond, chosen_partitions, clipped, resolve
from waltz_spark.planning import Range, cut, ranges_between
from waltz_spark.reading import RangePartition, read_range

if TYPE_CHECKING:
    from waltz_spark.options import ReadOptions

log = logging.getLogger("waltz_spark")


class WaltzBatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks (on a pickled copy: it holds nothing but its options)."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """One task per range. Where the log ends is settled here, once for the query."""
        options = self._options
        ranges = plan(options)
        with lease(options.client) as connection:
            key = connection.identity.key
        return [
            RangePartition(one, key)
            for one in cut(ranges, options.min_partitions, options.max_transactions_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_range(self._options, partition)


def plan(
    options: ReadOptions,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Range]:
    """The committed ranges that the options name, one per partition.

    OptionError for a place that is not in the log; DataLossError for one behind its end, or, without
    `failOnDataLoss`, a warning: after a while, see `behind`.
    """
    timeout_seconds = options.read_timeout_ms / 1000
    with lease(options.client) as connection:
        with option_named("partitions"):
            chosen = chosen_partitions(options.partitions, connection.identity.num_partitions)
        ends = all_ends(connection, chosen, timeout_seconds)
        starts = _resolved("startingTransactions", options.starting, ends)
        stops = _resolved("endingTransactions", options.ending, ends)
        furthest = {partition: max(starts[partition], stops[partition]) for partition in chosen}
        behind(connection, furthest, ends, timeout_seconds, clock, sleep)
    starts = _places("startingTransactions", options.starting, ends, options)
    stops = _places("endingTransactions", options.ending, ends, options)
    for partition in chosen:
        if starts[partition] > stops[partition]:
            raise OptionError(
                f"partition {partition}: startingTransactions is {starts[partition]}, after endingTransactions {stops[partition]}"
            )
    return ranges_between(starts, stops)


@contextmanager
def option_named(name: str) -> Iterator[None]:
    """A PlaceError inside is a mistake in this option."""
    try:
        yield
    except PlaceError as error:
        raise OptionError(f"option {name}: {error}") from None


def _resolved(name: str, given: Position, ends: dict[int, int]) -> dict[int, int]:
    with option_named(name):
        return resolve(given, ends)


def _places(name: str, given: Position, ends: dict[int, int], options: ReadOptions) -> dict[int, int]:
    places = _resolved(name, given, ends)
    for partition, place, end in beyond(places, ends):
        line = f"option {name}: partition {partition} ends before transaction {end}, {place} was asked for"
        if options.fail_on_data_loss:
            raise DataLossError(f"{line} (failOnDataLoss = false reads what exists)")
        log.warning("waltz: %s", line)
    return clipped(places, ends)
