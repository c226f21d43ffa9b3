"""The jobs on a real log, compared with plain computations; each also a second time, as after a restart."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ledger.events import Opened, Refused, Transfer, Transferred, encode
from spark_tests.local_log import LocalLog
from waltz_client import Append, Committed, HeaderNamespace, Outcome
from waltz_spark.options import LIMITS_SINCE, spark_is_at_least

pytestmark = [pytest.mark.timeout(600)]

LEDGER, ALERTS = 0, 1


def append(log: LocalLog, events: list[Any]) -> None:
    async def run() -> None:
        left = [Append(LEDGER, data, header) for header, data in map(encode, events)]
        while left:  # once, unless the partition moves
            results = await log.client.append_many(left, deadline_seconds=60)
            failed = [result for result in results if not isinstance(result, Committed)]
            assert all(error.outcome is Outcome.FAILED for error in failed), failed
            left = [append for append, result in zip(left, results, strict=True) if result in failed]

    log.run(run())


def events(first: int, count: int) -> list[Any]:
    """Transfers between five accounts; account 0 pays in bursts."""
    made: list[Any] = []
    for i in range(first, first + count):
        order = Transfer("EUR", f"order-{i}", f"a{0 if i % 20 < 6 else i % 5}", f"a{(i + 1) % 5}", i % 7 + 1)
        kind = Refused if i % 11 == 0 else Transferred
        made.append(kind(**order.__dict__))
    return made


def expected_balances(given: list[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in given:
        if isinstance(event, Opened):
            found[event.account] += event.balance
        elif isinstance(event, Transferred):
            found[event.source] -= event.amount
            found[event.target] += event.amount
    return found


OPENED, TRANSFERRED = (HeaderNamespace("ledger").header(kind) for kind in (1, 2))
JUNK = [
    (77, b"of another program"),
    (0, b"hello, log"),
    (1464028237, b"no claim"),
    (OPENED, b"\xff\xfe{"),
    (OPENED, b'{"book": "EUR", "account": "a0"}'),
    (TRANSFERRED, b"[" * 10_000),
    (
        TRANSFERRED,
        b'{"book": "EUR", "id": "x", "source": "a0", "target": "a1", "amount": 9223372036854775807}',
    ),
    (TRANSFERRED, b'{"book": null, "id": "x", "source": "a0", "target": "a1", "amount": 1}'),
    (TRANSFERRED, b'{"book": "EUR", "id": "x", "source": 7, "target": {}, "amount": "much"}'),
]
"""Header and payload of what other programs, and broken ones, append to a partition of the ledger."""
MALFORMED = sum(header in (OPENED, TRANSFERRED) for header, _ in JUNK)


def limit(transactions: str) -> dict[str, str]:
    """Several batches, where Spark can be asked for them."""
    return {"maxTransactionsPerTrigger": transactions} if spark_is_at_least(LIMITS_SINCE) else {}


def append_junk(log: LocalLog, partition: int) -> None:
    headers = [header for header, _ in JUNK]
    log.append(partition, (data for _, data in JUNK), headers.__getitem__)


@pytest.mark.long
def test_nothing_that_others_append_stops_a_job(
    spark: SparkSession, log: LocalLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    balances, delays = (importlib.import_module(name) for name in ("ledger_balances", "flight_delays"))
    start = log.end(LEDGER)
    append_junk(log, LEDGER)
    append(log, [Opened("EUR", "a0", 5), Opened("EUR", "a1", 5), Transferred("EUR", "t", "a0", "a1", 2)])
    append_junk(log, LEDGER)
    log.append(LEDGER, [b'{"row": 1, "carrier": "UA", "dep_delay": 3}'], lambda _: 4_711)
    options = {
        **log.keys,
        "partitions": str(LEDGER),
        "startingTransactions": json.dumps({str(LEDGER): start}),
    }
    output = str(tmp_path / "balances")
    checkpoint = str(tmp_path / "checkpoint")
    balances.run_stream(spark, options, output, checkpoint, until_end=True, seconds=1)
    table = balances.read_current(spark, output).collect()
    assert sorted(tuple(row) for row in table) == [("EUR", "a0", 3), ("EUR", "a1", 7)]
    assert f"query ledger-balances, batch 0: {2 * MALFORMED} payloads were left out" in caplog.text
    delays.run_batch(spark, options, str(tmp_path / "delays"))
    (flight,) = spark.read.json(str(tmp_path / "delays")).collect()
    assert (flight["carrier"], flight["flights"], flight["departure_delay"]) == ("UA", 1, 3)
    assert f"flight-delays: {2 * len(JUNK) + 3} payloads were left out" in caplog.text


@pytest.mark.long
def test_balances_and_bursts_over_a_restart(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    jobs = {name: importlib.import_module(name) for name in ("ledger_balances", "fraud_windows")}
    start, alerts_start = log.end(LEDGER), log.end(ALERTS)
    given: list[Any] = [Opened("EUR", f"a{i}", 100) for i in range(5)] + events(0, 120)
    options = {
        **log.keys,
        "partitions": str(LEDGER),
        "startingTransactions": json.dumps({str(LEDGER): start}),
        **limit("100"),
    }
    append_junk(log, LEDGER)
    first_id = log.end(LEDGER)
    append(log, given)
    for more in ([], events(120, 60)):
        append(log, more)
        given += more
        output = str(tmp_path / "balances")
        jobs["ledger_balances"].run_stream(
            spark, options, output, str(tmp_path / "checkpoint-1"), until_end=True, seconds=1
        )
        table = jobs["ledger_balances"].read_current(spark, output)
        assert {row["account"]: row["balance"] for row in table.collect()} == dict(expected_balances(given))
    for _ in range(2):
        jobs["fraud_windows"].run_stream(
            spark,
            options,
            str(tmp_path / "checkpoint-2"),
            limit=5,
            window=12,
            alerts_partition=ALERTS,
            until_end=True,
            seconds=1,
        )
    found = Counter(
        (alert["account"], alert["first"], alert["last"])
        for alert in (
            json.loads(t.data or b"")
            for t in log.transactions(ALERTS)
            if t.transaction_id >= alerts_start and t.header == jobs["fraud_windows"].ALERT
        )
    )
    ids: dict[str, list[int]] = {}
    for i, event in enumerate(given):
        if isinstance(event, Transferred):
            ids.setdefault(event.source, []).append(first_id + i)
    plain = Counter(
        (account, first, last)
        for account, its in ids.items()
        for first, last in jobs["fraud_windows"].bursts([], its, 5, 12)[1]
    )
    assert plain
    assert found == plain


def test_there_is_a_whole_table_of_balances_at_any_time(spark: SparkSession, tmp_path: Path) -> None:
    """While the next one is written, after a kill, and with a new checkpoint; and the old ones go."""
    job = importlib.import_module("ledger_balances")
    output = str(tmp_path / "balances")
    with pytest.raises(LookupError, match="no table yet"):
        job.read_current(spark, output)
    for i in range(8):
        table = spark.range(i, i + 1)
        if i == 3:  # a job that was killed while it wrote
            half = tmp_path / "balances" / "table-3"
            half.mkdir()
            (half / "part-0.parquet").write_bytes(b"half")
            assert [row["id"] for row in job.read_current(spark, output).collect()] == [2]
        job.write_table(table, output)
        assert [row["id"] for row in job.read_current(spark, output).collect()] == [i]
    assert job.tables(spark, output) == [3, 4, 5, 6, 7]
    assert sorted(path.name for path in (tmp_path / "balances").iterdir()) == [
        f"table-{i}" for i in range(3, 8)
    ]


@pytest.mark.long
def test_the_lake_has_the_log_as_of_a_vector(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    job = importlib.import_module("lake_export")
    for partition in range(4):
        log.append(partition, (b"lake %d" % i for i in range(50)))
    lake = job.Lake(str(tmp_path / "lake"))
    ends = {partition: log.end(partition) for partition in range(4)}
    half = {partition: end - 20 for partition, end in ends.items()}
    rows_per_file, all_rows = max(ends.values()) // 2, sum(ends.values())
    first = job.export(spark, log.keys, lake, half, rows_per_file)
    assert first.next_ids == half
    assert job.export(spark, log.keys, lake, half, rows_per_file) == first
    second = job.export(spark, log.keys, lake, ends, rows_per_file)
    assert len(second.files) > 8
    third = job.compact(spark, lake, all_rows)
    assert len(third.files) == 4
    assert job.compact(spark, lake, all_rows) == third
    for number, vector in ((first.number, half), (second.number, ends), (third.number, ends)):
        rows = {
            (r["partition"], r["transaction_id"], bytes(r["data"]))
            for r in lake.read(spark, number).collect()
        }
        assert rows == {
            (p, t.transaction_id, t.data)
            for p in range(4)
            for t in log.transactions(p)
            if t.transaction_id < vector[p]
        }
