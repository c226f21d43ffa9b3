"""`python -m flights.spark` (make demo-spark): flights through a local cluster, counted by Spark in two
ways, compared with the file.

A cluster of processes takes the flights of a year (`--rows` makes it short). Then the shipped job runs twice:
at once over what is committed, and as a stream in small batches with a checkpoint. Both results are compared
with a plain computation over the CSV. The jobs are programs of their own, started as `spark-submit` would
start them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flights.data import Flight, FlightPlan, encode_payload, load_plan
from waltz_client import Append, Committed, WaltzClient
from waltz_cluster.config.files import load_file
from waltz_spark.spark_home import prepare
from waltz_tools.__main__ import leave, show
from waltz_tools.errors import ProcessFailedError, ToolError
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.java import find_java

Delays = dict[str, dict[str, int | float | None]]
JOB = "flight_delays.py"
_PIPELINE = 1_024
_LAST_WORDS = 2_000


def expected_delays(flights: Iterable[Flight]) -> Delays:
    """What the job computes, without Spark and without a log."""
    found: Delays = {}
    for flight in flights:
        row = found.setdefault(
            flight.carrier,
            dict.fromkeys(("flights", "departed", "departure_delay", "arrived", "arrival_delay"), 0),
        )
        _add(row, "flights", 1)
        for delay, count, total in (
            (flight.departure_delay, "departed", "departure_delay"),
            (flight.arrival_delay, "arrived", "arrival_delay"),
        ):
            if delay is not None:
                _add(row, count, 1)
                _add(row, total, delay)
    return found


def _add(row: dict[str, int | float | None], key: str, more: int) -> None:
    row[key] = (row[key] or 0) + more


def read_result(folder: Path) -> Delays:
    """The table that a job has written: JSON lines in one or several files. A sum over nothing is left out
    there, 0 here."""
    found: Delays = {}
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["carrier"]] = {
                key: row.get(key, 0)
                for key in ("flights", "departed", "departure_delay", "arrived", "arrival_delay")
            }
    return found


def differences(expected: Delays, found: Delays) -> list[str]:
    """A line per carrier that is not as it should be."""
    return [
        f"{carrier}: {found.get(carrier, 'missing')} instead of {expected.get(carrier, 'nothing')}"
        for carrier in sorted(expected.keys() | found.keys())
        if expected.get(carrier) != found.get(carrier)
    ]


async def append_all(config: Path, plan: FlightPlan) -> None:
    """Every flight into the partition of its carrier. ToolError for the first one that is not committed."""
    settings = {**load_file(config), "client.maxConcurrentTransactions": _PIPELINE}
    async with WaltzClient.connect(settings) as client:
        appends = (
            Append(plan.partition(flight), encode_payload(flight, None), plan.header(flight))
            for flight in plan.flights
        )
        for result in await client.append_many(appends):
            if not isinstance(result, Committed):
                raise ToolError(f"a flight was not committed: {result}")


async def run_job(job: Path, directory: Path, name: str, arguments: Sequence[str]) -> tuple[Delays, float]:
    """Run the job to its end; its result and the seconds it took. ProcessFailedError with its last words."""
    output, log_path = directory / name, directory / f"{name}.log"
    environment = {**os.environ, **spark_environment(directory)}
    started = time.monotonic()
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(job), "--output", str(output), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    if code != 0:
        words = log_path.read_text(errors="replace")[-_LAST_WORDS:]
        raise ProcessFailedError(f"{job.name} ({name}) ended with code {code}: {words}")
    return read_result(output), time.monotonic() - started


def spark_environment(directory: Path) -> Mapping[str, str]:
    """Two cores, no web page, few partitions; workers run this Python, and Java is the one of the local
    cluster."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    arguments = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    return {
        "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(prepare(directory / "spark")),
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {arguments} pyspark-shell",
    }


async def run_demo(rows: int | None, job: Path, directory: Path) -> bool:
    """Load, run both jobs, compare; whether everything is equal."""
    settings = LocalSettings(directory / "cluster", storage_nodes=3, servers=2, partitions=8)
    plan = load_plan(rows, 8)
    expected = expected_delays(plan.flights)
    async with LocalCluster(settings) as cluster:
        started = time.monotonic()
        await append_all(cluster.client_config, plan)
        _say(f"{len(plan.flights):,} flights appended in {time.monotonic() - started:.1f} s")
        log = ("--options-file", str(cluster.client_config))
        batch, seconds = await run_job(job, directory, "batch", log)
        wrong = [f"batch job: {line}" for line in differences(expected, batch)]
        _say(f"batch job: {len(batch)} carriers in {seconds:.1f} s")
        per_trigger = max(1, len(plan.flights) // 5)
        stream, seconds = await run_job(
            job,
            directory,
            "stream",
            (
                *log,
                *("--stream", "--until-end", "--checkpoint", str(directory / "checkpoint")),
                *("--option", f"maxTransactionsPerTrigger={per_trigger}"),
            ),
        )
        wrong += [f"streaming job: {line}" for line in differences(expected, stream)]
        batches = len(list((directory / "checkpoint" / "commits").glob("[0-9]*")))
        _say(f"streaming job: {len(stream)} carriers in {seconds:.1f} s, {batches} batches")
    for line in wrong:
        _say(f"wrong: {line}")
    _say("PASS: both results are those of the file" if not wrong else "FAIL")
    return not wrong


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """The command line; the exit code, 0 for PASS."""
    flags = argparse.ArgumentParser(description="Flights through a local cluster, counted by Spark.")
    rows = os.environ.get("ROWS") or None
    flags.add_argument("--rows", type=int, default=rows, help="only the first rows; all 336,776 without it")
    flags.add_argument("--jobs", type=Path, default=Path("spark-on-k8s/jobs"), help="where the jobs are")
    given = flags.parse_args()
    job = given.jobs / JOB
    try:
        if not job.exists():
            raise ToolError(
                f"there is no {job}: run this in the repository, or pass their folder with --jobs"
            )
        with tempfile.TemporaryDirectory(prefix="waltz-demo-spark-", ignore_cleanup_errors=True) as folder:
            passed = asyncio.run(run_demo(given.rows, job, Path(folder)))
    except Exception as error:
        return show(error)
    return 0 if passed else 1


if __name__ == "__main__":
    leave(main)
